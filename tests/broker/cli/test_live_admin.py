"""configs, get-offsets, delete-records, log-dirs, leader-election and verify against a running broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gregor.broker.cli import verify
from tests.broker.cli.tool import Tool
from tests.compat.records import until
from tests.support.processes import BrokerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(topic_with: Callable[[Sequence[str]], str]) -> str:
    """A topic with ten records of one key, so that they are all in one partition."""
    return topic_with(["k0"] * 10)


def full_partition(tool: Tool, topic: str) -> int:
    """Where all records of one key went."""
    ends = dict(line.split(":")[1:] for line in tool.run("get-offsets", "--topic", topic).splitlines())
    assert sorted(ends.values()) == ["0", "10"]
    return int(next(number for number, end in ends.items() if end == "10"))


def test_settings_of_a_topic(tool: Tool, topic: str) -> None:
    title = f"Dynamic configs for topic {topic} are:"
    assert tool.run("configs", "--describe", "--topic", topic).splitlines() == [title]
    changes = "retention.ms=60000,cleanup.policy=[compact,delete]"
    done = f"Completed updating config for topic {topic}.\n"
    assert tool.run("configs", "--alter", "--topic", topic, "--add-config", changes) == done
    found = tool.run("configs", "--describe", "--topic", topic).splitlines()
    assert found[0] == title and found[1].startswith(
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC"
    )
    assert tool.run("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms") == done
    everything = tool.run("configs", "--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
    assert everything.startswith(f"All configs for topic {topic} are:\n") and "  retention.ms=604800000 " in everything
    assert "retention.ms" not in tool.run("configs", "--describe", "--topic", topic)
    refused = tool.run("configs", "--alter", "--topic", topic, "--add-config", "retention.ms=soon", code=1)
    assert "INVALID_CONFIG" in refused and "retention.ms" in refused
    assert "does not exist" in tool.run("configs", "--describe", "--topic", "absent", code=1)


def test_settings_of_brokers(tool: Tool) -> None:
    add = ("--add-config", "log.cleaner.backoff.ms=7000")
    done = tool.run("configs", "--alter", "--broker-defaults", *add)
    assert done == "Completed updating default config for brokers in the cluster.\n"
    shown = "  log.cleaner.backoff.ms=7000 sensitive=false"
    # A broker of Apache Kafka applies an altered setting a little later.
    until(lambda: shown in tool.run("configs", "--describe", "--broker-defaults"), "the setting")
    for line in tool.run("configs", "--describe", "--entity-type", "brokers").splitlines():
        if line.startswith("Dynamic configs for broker "):
            broker_id = line.split()[4]
    everything = tool.run("configs", "--describe", "--all", "--broker", broker_id)
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=7000" in everything
    tool.run("configs", "--alter", "--broker-defaults", "--delete-config", "log.cleaner.backoff.ms")
    until(lambda: "backoff" not in tool.run("configs", "--describe", "--broker-defaults"), "the default")


def test_credentials_of_a_user(tool: Tool) -> None:
    user = f"alice-{time.time_ns()}"
    of_user = ("configs", "--entity-type", "users", "--entity-name", user)
    both = "SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]"
    done = f"Completed updating config for user {user}.\n"
    assert tool.run(*of_user, "--alter", "--add-config", both) == done
    found = f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-256=iterations=8192"
    shown = f"{found}, SCRAM-SHA-512=iterations=4096\n"
    # A broker of Apache Kafka applies a changed credential a little later.
    until(lambda: tool.run(*of_user, "--describe") == shown, "the credentials")
    assert shown in tool.run("configs", "--describe", "--entity-type", "users")
    assert tool.run(*of_user, "--alter", "--delete-config", "SCRAM-SHA-512") == done
    until(lambda: tool.run(*of_user, "--describe") == f"{found}\n", "one credential")
    assert "RESOURCE_NOT_FOUND" in tool.run(*of_user, "--alter", "--delete-config", "SCRAM-SHA-512", code=1)
    assert tool.run(*of_user, "--alter", "--delete-config", "SCRAM-SHA-256") == done
    until(lambda: tool.run(*of_user, "--describe") == "", "no credential")


def test_offsets_at_all_times(tool: Tool, topic: str) -> None:
    full = full_partition(tool, topic)
    only = ("get-offsets", "--topic-partitions", f"{topic}:{full}")
    for time_name, offset in (("latest", 10), ("-1", 10), ("earliest", 0), ("earliest-local", 0), ("0", 0)):
        assert tool.run(*only, "--time", time_name) == f"{topic}:{full}:{offset}\n"
    for time_name in ("latest-tiered", "-6", str(int(time.time() * 1000) + 60_000)):
        assert tool.run(*only, "--time", time_name) == ""
    [line] = tool.run("get-offsets", "--topic", topic, "--time", "max-timestamp").splitlines()
    assert line.startswith(f"{topic}:{full}:")
    assert "no partition matches" in tool.run("get-offsets", "--topic", "absent", code=1)


def test_deleted_records(tool: Tool, topic: str, tmp_path: Path) -> None:
    full = full_partition(tool, topic)
    file = tmp_path / "delete.json"
    places = [{"topic": topic, "partition": full, "offset": 4}, {"topic": topic, "partition": 9, "offset": 1}]
    file.write_text(json.dumps({"partitions": places[:1]}))
    heading = ["Executing records delete operation", "Records delete operation completed:"]
    said = tool.run("delete-records", "--offset-json-file", str(file)).splitlines()
    assert said == [*heading, f"partition: {topic}-{full}\tlow_watermark: 4"]
    assert tool.run("get-offsets", "--topic-partitions", f"{topic}:{full}", "--time", "earliest").endswith(":4\n")
    file.write_text(json.dumps({"partitions": places}))
    tool.run("delete-records", "--offset-json-file", str(file), code=1)
    file.write_text(json.dumps({"partitions": [{**places[0], "offset": 99}]}))
    tool.run("delete-records", "--offset-json-file", str(file), code=1)
    file.write_text(json.dumps({"partitions": [{**places[0], "offset": -1}]}))
    assert tool.run("delete-records", "--offset-json-file", str(file)).endswith("low_watermark: 10\n")


def test_folders(tool: Tool, topic: str) -> None:
    full = full_partition(tool, topic)
    *heading, text = tool.run("log-dirs", "--describe", "--topic-list", topic).splitlines()
    assert heading[0] == "Querying brokers for log directories information"
    assert heading[1].startswith("Received log directory information from brokers ")
    described = json.loads(text)
    assert described["version"] == 1
    [node] = described["brokers"]
    sizes = {part["partition"]: part["size"] for folder in node["logDirs"] for part in folder["partitions"]}
    assert sizes.keys() == {f"{topic}-0", f"{topic}-1"} and sizes[f"{topic}-{full}"] > 0
    assert "there is no broker 77" in tool.run("log-dirs", "--describe", "--broker-list", "77", code=1)


def test_elections(tool: Tool, topic: str, tmp_path: Path) -> None:
    preferred = ("leader-election", "--election-type", "preferred")
    needless = f"Valid replica already elected for partitions {topic}-1\n"
    assert tool.run(*preferred, "--topic", topic, "--partition", "1") == needless
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 1}]}))
    assert tool.run(*preferred, "--path-to-json-file", str(file)) == needless
    assert tool.run("leader-election", "--election-type", "unclean", "--all-topic-partitions") == ""
    assert "could not be elected" in tool.run(*preferred, "--topic", topic, "--partition", "9", code=1)


def test_forgotten_offsets(tool: Tool, topic: str) -> None:
    group = f"{topic}-g"
    tool.run("groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
    forget = ("groups", "--delete-offsets", "--group", group)
    first, _, *rows = tool.run(*forget, "--topic", f"{topic}:0").splitlines()
    assert first == f"Request succeeded for deleting offsets from group {group}."
    assert [row.split() for row in rows] == [["TOPIC", "PARTITION", "STATUS"], [topic, "0", "Successful"]]
    assert f"Dynamic configs for group {group} are:" in tool.run("configs", "--describe", "--entity-type", "groups")
    left = tool.run("groups", "--describe", "--group", group)
    assert [line.split()[2] for line in left.splitlines() if line.startswith(group)] == ["1"]
    refused = tool.run(*forget, "--topic", "absent", "--topic", f"{topic}:7", code=1)
    assert "offsets of 2 partition(s) were not deleted" in refused
    assert "does not exist" in tool.run("groups", "--delete-offsets", "--group", "absent", "--topic", topic, code=1)


def test_the_folder_of_a_running_broker_is_whole(
    request: pytest.FixtureRequest, tool: Tool, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if request.config.getoption("--against"):
        pytest.skip("the folder of the broker of --against is not known")
    broker: BrokerProcess = request.getfixturevalue("broker")
    assert verify.main([str(broker.folder / "data"), "--topic", topic]) == 0
    assert "in use by a running broker" in capsys.readouterr().out
