"""Every dynamic setting that acts: in effect when the request is answered, and after a restart; gone when deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import CLUSTER_WIDE, ConfigDef
from gregor.config.tables.broker_keys import BROKER_KEYS
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.config.topic import LogConfig
from gregor.config.validators import Choices, Range
from gregor.protocol.messages import IncrementalAlterConfigsRequest
from tests.broker.harness import Harness

# Legal values of the settings for which the rules below find none.
OTHER_VALUES = {
    "compression.gzip.level": "5",
    "log.cleaner.io.buffer.load.factor": "0.8",
    "log.retention.ms": "1234567",
    "log.roll.ms": "7654321",
    "log.roll.jitter.ms": "11",
    "log.flush.interval.ms": "4321",
    "max.connections.per.ip.overrides": "127.0.0.1:77",
    "log.cleaner.max.compaction.lag.ms": "99999999",
    "log.cleaner.io.max.bytes.per.second": "1000000.5",
}


def another(definition: ConfigDef) -> str:
    """A legal value that is not the default."""
    if definition.key in OTHER_VALUES:
        return OTHER_VALUES[definition.key]
    default = definition.default
    if isinstance(default, bool):
        return "false" if default else "true"
    if isinstance(definition.validator, Choices):
        return next(choice for choice in definition.validator.choices if choice not in (default if default else ""))
    if isinstance(default, float):
        return "0.25"
    assert isinstance(default, int), definition.key
    bounds = definition.validator
    highest = bounds.maximum if isinstance(bounds, Range) and bounds.maximum is not None else 2**31 - 1
    return str(default + 1 if default < highest else default - 1)


KEYS = [row for row in BROKER_KEYS.values() if row.dynamic == CLUSTER_WIDE and not row.no_effect]


def alter(harness: Harness, name: str, values: dict[str, str | None]) -> None:
    make = IncrementalAlterConfigsRequest.AlterableConfig
    configs = [make(name=key, config_operation=int(value is None), value=value) for key, value in values.items()]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name=name, configs=configs)
    (answer,) = harness.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


def log_config(harness: Harness) -> LogConfig:
    log = harness.broker.logs.get("t", 0)
    assert log is not None
    return log.config


@pytest.mark.slow
def test_each_acts_at_once_and_after_a_restart(tmp_path: Path) -> None:
    values = {row.key: another(row) for row in KEYS}
    harness = Harness(tmp_path / "data").start()
    harness.create_topic("t")
    before = log_config(harness)
    alter(harness, "", dict(values))
    for restarted in (False, True):
        if restarted:
            harness.stop()
            harness = Harness(tmp_path / "data").start()
        for row in KEYS:
            assert harness.broker.config[row.key] == row.parse(values[row.key]), row.key
            assert harness.broker.config.source(row.key) == "DYNAMIC_DEFAULT_BROKER_CONFIG"
        expected = LogConfig.defaults(BrokerConfig({**harness.config.static_texts, **values}))
        assert log_config(harness) == expected != before
        by_topics = [key for key, row in TOPIC_KEYS.items() if set(row.broker_synonyms) & set(values)]
        same = [key for key in by_topics if getattr(expected, name(key), 1) == getattr(before, name(key), 0)]
        assert same == [], "each of them differs"
        log = harness.broker.logs.get("t", 0)
        assert log is not None and log.producers.expiration_ms == int(values["producer.id.expiration.ms"])
    # The layers, from the top: of this broker, of all, static, default.
    alter(harness, "0", {"message.max.bytes": "5"})
    assert log_config(harness).max_message_bytes == 5
    alter(harness, "0", {"message.max.bytes": None})
    assert log_config(harness).max_message_bytes == int(values["message.max.bytes"])
    alter(harness, "", dict.fromkeys(values))
    assert log_config(harness) == before
    assert harness.broker.config.dynamic_default_texts == {}
    harness.stop()


def name(key: str) -> str:
    return key.replace(".", "_")


def test_processes_for_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    harness = Harness(tmp_path / "data").start()
    alter(harness, "", {"num.recovery.threads.per.data.dir": "3"})
    assert harness.node.scan_helper.max_processes == 3
    harness.stop()
    harness = Harness(tmp_path / "data").start()
    assert harness.node.scan_helper.max_processes == 3
    harness.stop()


def test_a_topics_own_setting_wins_over_all(tmp_path: Path) -> None:
    harness = Harness(tmp_path, message_max_bytes="1").start()
    harness.create_topic("t", max_message_bytes="7")
    alter(harness, "", {"message.max.bytes": "2"})
    alter(harness, "0", {"message.max.bytes": "3"})
    assert log_config(harness).max_message_bytes == 7
    harness.stop()
