"""The properties file read again: what is applied, what is not, and the reason in words."""

from __future__ import annotations

import pathlib

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.reload import reload


def lines(config: BrokerConfig, texts: dict[str, str]) -> dict[str, tuple[bool, str]]:
    return {one.key: (one.applied, one.line) for one in reload(config, texts)}


def test_nothing_changed() -> None:
    texts = {"message.max.bytes": "5", "port": "9092", "what.is.this": "x", "zookeeper.sync.time.ms": "1"}
    assert lines(BrokerConfig(texts), texts) == {}


@pytest.mark.parametrize(
    ("before", "after", "applied", "reason"),
    [
        ({}, {"message.max.bytes": "5"}, True, "message.max.bytes=5 is applied"),
        ({"message.max.bytes": "5"}, {}, True, "message.max.bytes (no longer in the file) is applied"),
        ({}, {"listener.name.plaintext.max.connections": "5"}, True, "is applied"),
        ({}, {"listeners": "PLAINTEXT://localhost:9093"}, True, "is applied"),
        ({}, {"message.max.bytes": "many"}, False, "whole number"),
        ({}, {"max.connections.per.ip": "0"}, False, "only beside max.connections.per.ip.overrides"),
        ({}, {"num.partitions": "5"}, False, "read-only; restart the broker to apply it"),
        ({"log.dirs": "a"}, {}, False, "read-only"),
        ({}, {"num.io.threads": "5"}, False, "without effect here: one event loop"),
        ({}, {"remote.log.reader.threads": "5"}, False, "without effect here: gregor has no remote storage"),
        (
            {},
            {"listener.name.a.ssl.provider": "x"},
            False,
            "without effect here: OpenSSL serves TLS",
        ),
        ({}, {"message.max.byte": "5"}, False, "did you mean message.max.bytes?"),
        ({"port": "9092"}, {"port": "9093"}, False, "at start-up only"),
        ({"zookeeper.sync.time.ms": "1"}, {}, False, "at start-up only"),
    ],
)
def test_one_key(before: dict[str, str], after: dict[str, str], applied: bool, reason: str) -> None:
    config = BrokerConfig(before)
    ((key, (done, line)),) = lines(config, after).items()
    assert (done, key in {**before, **after}) == (applied, True)
    assert reason in line
    # A change that was not applied is reported again; an applied change is not.
    assert (lines(config, after) == {}) is applied


def test_environment_has_precedence_over_the_file() -> None:
    config = BrokerConfig({"message.max.bytes": "1", "log.segment.bytes": "2000000"})
    config.overrides = {"log.segment.bytes": "2000000"}
    config.update_dynamic({"message.max.bytes": "2"}, {"min.insync.replicas": "3"})
    found = lines(config, {"message.max.bytes": "5", "min.insync.replicas": "6", "log.segment.bytes": "3000000"})
    assert found == {
        "log.segment.bytes": (
            False,
            "log.segment.bytes=3000000 is ignored: the command line sets it and has precedence",
        ),
        "message.max.bytes": (
            False,
            "message.max.bytes=5 is stored, but the dynamic setting of this broker has precedence",
        ),
        "min.insync.replicas": (
            False,
            "min.insync.replicas=6 is stored, but the dynamic setting of all brokers has precedence",
        ),
    }
    config.update_dynamic({}, {})
    assert (config["message.max.bytes"], config["min.insync.replicas"]) == (5, 6)


def test_the_environment_wins_over_the_file_too(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nmessage.max.bytes=1\nbroker.rack=a")
    config = BrokerConfig.load(
        str(file), [("message.max.bytes", "3")], {"num.partitions": "4", "message.max.bytes": "2"}
    )
    assert (config["num.partitions"], config["message.max.bytes"], config["broker.rack"]) == (4, 3, "a")
    found = lines(config, {"num.partitions": "5", "message.max.bytes": "4", "broker.rack": "a"})
    assert found == {
        "message.max.bytes": (False, "message.max.bytes=4 is ignored: the command line sets it and has precedence"),
        "num.partitions": (False, "num.partitions=5 is ignored: the environment sets it and has precedence"),
    }


def test_settings_that_fit_only_together() -> None:
    config = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "10"})
    low, high = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    found = lines(config, {low: "20", high: "30", "message.max.bytes": "x"})
    assert {key: done for key, (done, _) in found.items()} == {low: True, high: True, "message.max.bytes": False}
    assert (config[low], config[high]) == (20, 30)


def test_secrets_are_not_logged() -> None:
    found = lines(BrokerConfig(), {"ssl.key.password": "hunter2", "my.secret": "hunter2"})
    assert len(found) == 2 and "hunter2" not in str(found)
