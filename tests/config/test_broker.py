"""A broker's settings from defaults, file and command line, and dynamic ones over them."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from tests.support.processes import ROOT

SHIPPED = ROOT / "config" / "server.properties"


def listeners(settings: BrokerConfig) -> tuple[list[str], list[str]]:
    return [one.text for one in settings.listeners], [one.text for one in settings.advertised_listeners]


def test_defaults() -> None:
    settings = BrokerConfig.load()
    assert listeners(settings) == (["PLAINTEXT://localhost:9092"], ["PLAINTEXT://localhost:9092"])
    assert (settings.log_dirs, settings.broker_id, settings.inter_broker_listener_name) == (
        ["./gregor-data"],
        0,
        "PLAINTEXT",
    )
    assert (settings.warnings, settings.notes) == ([], [])
    assert settings["num.partitions"] == 1
    assert settings["log.retention.ms"] is None
    assert settings.source("num.partitions") == "DEFAULT_CONFIG"
    with pytest.raises(KeyError):
        settings["no.such.key"]


def test_the_command_line_wins_over_the_file(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nlog.dirs = /a, /b\n")
    settings = BrokerConfig.load(str(file), [("num.partitions", "5"), ("log.segment.bytes", "2000000")])
    assert (settings["num.partitions"], settings["log.segment.bytes"], settings.log_dirs) == (5, 2000000, ["/a", "/b"])
    assert settings.source("num.partitions") == "STATIC_BROKER_CONFIG"


def test_a_file_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        BrokerConfig.load(str(tmp_path / "missing"))
    (tmp_path / "broken").write_text("a=\\u12")
    with pytest.raises(ConfigError, match=r"broken: malformed"):
        BrokerConfig.load(str(tmp_path / "broken"))


def test_the_shipped_file_holds_the_defaults(tmp_path: pathlib.Path) -> None:
    shipped = BrokerConfig.load(str(SHIPPED))
    assert (shipped.static_texts, shipped.warnings) == ({}, [])
    # With every setting uncommented, nothing changes but the number, which a lone broker has anyway.
    uncommented = tmp_path / "server.properties"
    lines = [line for line in SHIPPED.read_text().splitlines() if line.startswith("#") and line[1:2].islower()]
    uncommented.write_text("\n".join(line[1:] for line in lines))
    settings = BrokerConfig.load(str(uncommented))
    assert (settings.warnings, settings.notes) == ([], [])
    defaults = BrokerConfig()
    assert len(settings.static_texts) == len(lines) > 30
    changed = {key for key in settings.static_texts if settings[key] != defaults[key]}
    assert changed <= {
        "broker.id",
        "log.dirs",
        "advertised.listeners",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
    }
    assert listeners(settings) == listeners(defaults)
    assert (settings.log_dirs, settings.broker_id) == (defaults.log_dirs, defaults.broker_id)
    assert settings.inter_broker_listener_name == defaults.inter_broker_listener_name


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("num.partitions", "0", "num.partitions=0: must be a whole number (int), at least 1"),
        ("log.segment.bytes", "1k", "log.segment.bytes=1k: must be a whole number (int), at least 1048576"),
        ("log.retention.hours", "0", "log.retention.hours=0: must be -1 (never) or at least 1"),
        ("log.retention.ms", "-5", "log.retention.ms=-5: must be -1 (never) or at least 1"),
        ("log.roll.ms", "0", "log.roll.ms=0: must be at least 1"),
        ("log.roll.jitter.ms", "-1", "log.roll.jitter.ms=-1: must be at least 0"),
        ("log.dirs", "", "log.dirs=: must name at least one folder"),
        ("broker.id", "-2", "broker.id=-2: must be a whole number (int), at least 0"),
        (
            "queued.max.request.bytes",
            "5",
            "queued.max.request.bytes=5: must be -1 or at least socket.request.max.bytes, 104857600",
        ),
        (
            "replica.fetch.wait.max.ms",
            "30001",
            "replica.fetch.wait.max.ms=30001: must be at most replica.socket.timeout.ms, 30000",
        ),
        (
            "replica.lag.time.max.ms",
            "400",
            "replica.fetch.wait.max.ms=500: must be at most replica.lag.time.max.ms, 400",
        ),
        (
            "max.connections.per.ip",
            "0",
            "max.connections.per.ip=0: refuses all clients; 0 is legal only beside max.connections.per.ip.overrides",
        ),
    ],
)
def test_a_bad_value_names_key_value_and_range(key: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({key: text})
    assert str(caught.value) == message


def test_limits_of_compaction_lag() -> None:
    lags = {"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5"}
    with pytest.raises(ConfigError, match="at most log.cleaner.max.compaction.lag.ms, 5"):
        BrokerConfig(lags)


def test_unknown_keys_are_warnings_that_name_the_nearest() -> None:
    settings = BrokerConfig({"log.retension.ms": "1", "qqq": "1"})
    assert settings.warnings == ["unknown key log.retension.ms; did you mean log.retention.ms?", "unknown key qqq"]


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ({}, 0),
        ({"broker.id": "7"}, 7),
        ({"node.id": "8"}, 8),
        ({"node.id": "8", "broker.id": "8"}, 8),
        ({"zookeeper.connect": "zk:2181", "broker.id": "3"}, 3),
        ({"zookeeper.connect": "zk:2181"}, -1),
    ],
)
def test_the_brokers_number(values: dict[str, str], number: int) -> None:
    assert BrokerConfig(values).broker_id == number


def test_numbers_that_contradict() -> None:
    with pytest.raises(ConfigError, match=r"must equal broker\.id, which is 2"):
        BrokerConfig({"node.id": "1", "broker.id": "2"})
    with pytest.raises(ConfigError, match="at least 0"):
        BrokerConfig({"broker.id.generation.enable": "false"})
    with pytest.raises(ConfigError, match=r"at most reserved\.broker\.max\.id, 1000"):
        BrokerConfig({"zookeeper.connect": "zk:2181", "broker.id": "1001"})
    given_up = {"zookeeper.connect": "zk:2181", "broker.id": "1001", "broker.id.generation.enable": "false"}
    assert BrokerConfig(given_up).broker_id == BrokerConfig({"broker.id": "1001"}).broker_id == 1001


@pytest.mark.parametrize(
    ("values", "bound", "advertised"),
    [
        ({"listeners": "PLAINTEXT://:0"}, ["PLAINTEXT://:0"], ["PLAINTEXT://:0"]),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://broker1:19092"},
            ["PLAINTEXT://0.0.0.0:9092"],
            ["PLAINTEXT://broker1:19092"],
        ),
        (
            {
                "listeners": "IN://:1,OUT://:2",
                "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
                "advertised.listeners": "OUT://o:2,IN://i:1",
                "inter.broker.listener.name": "in",
            },
            ["IN://:1", "OUT://:2"],
            ["OUT://o:2", "IN://i:1"],
        ),
        # Settings of brokers before 3.0.
        ({"port": "9093"}, ["PLAINTEXT://localhost:9093"], ["PLAINTEXT://localhost:9093"]),
        (
            {"host.name": "h", "advertised.host.name": "a"},
            ["PLAINTEXT://h:9092"],
            ["PLAINTEXT://a:9092"],
        ),
        (
            {"listeners": "PLAINTEXT://:9092", "advertised.host.name": "a", "advertised.port": "5"},
            ["PLAINTEXT://:9092"],
            ["PLAINTEXT://a:5"],
        ),
    ],
)
def test_addresses(values: dict[str, str], bound: list[str], advertised: list[str]) -> None:
    settings = BrokerConfig(values)
    assert listeners(settings) == (bound, advertised)
    assert settings.warnings == []


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners=.*no client can connect to 0.0.0.0",
        ),
        ({"advertised.listeners": "SSL://a:1"}, "listeners has only PLAINTEXT"),
        (
            {
                "advertised.listeners": "OUT://a:1",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
            },
            "listeners has only PLAINTEXT",
        ),
        (
            {"listeners": "OUT://a:1", "listener.security.protocol.map": "OUT:PLAINTEXT"},
            "security.inter.broker.protocol=",
        ),
        ({"inter.broker.listener.name": "OUT"}, "inter.broker.listener.name=OUT: must be one of .*PLAINTEXT"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "cannot be set beside",
        ),
        ({"listeners": "PLAINTEXT://a:1,CONTROLLER://a:2"}, "CONTROLLER has no security protocol"),
    ],
)
def test_addresses_that_are_refused(values: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig(values)


def test_dynamic_settings_win_and_go() -> None:
    settings = BrokerConfig({"log.retention.ms": "1000"})
    settings.update_dynamic({"log.retention.ms": "3000"}, {"log.retention.ms": "2000", "message.max.bytes": "9"})
    assert (settings["log.retention.ms"], settings["message.max.bytes"]) == (3000, 9)
    assert settings.source("log.retention.ms") == "DYNAMIC_BROKER_CONFIG"
    assert settings.source("message.max.bytes") == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    settings.update_dynamic({}, {"log.retention.ms": "2000"})
    assert settings["log.retention.ms"] == 2000
    settings.update_dynamic({}, {})
    assert (settings["log.retention.ms"], settings["message.max.bytes"]) == (1000, 1048588)
    assert settings.source("log.retention.ms") == "STATIC_BROKER_CONFIG"


@pytest.mark.parametrize(
    ("per_broker", "cluster_wide", "reason"),
    [
        ({"num.partitions": "2"}, {}, "read-only"),
        ({}, {"listeners": "PLAINTEXT://a:1"}, "single broker only"),
        ({"log.retentoin.ms": "2"}, {}, "did you mean log.retention.ms"),
        ({"message.max.bytes": "-1"}, {}, "at least 0"),
        ({}, {"log.retention.ms": "0"}, "at least 1"),
    ],
)
def test_dynamic_settings_that_are_refused(
    per_broker: dict[str, str], cluster_wide: dict[str, str], reason: str
) -> None:
    settings = BrokerConfig()
    settings.update_dynamic({"message.max.bytes": "9"}, {})
    with pytest.raises(ConfigError, match=reason):
        settings.update_dynamic(per_broker, cluster_wide)
    assert (settings["message.max.bytes"], settings.dynamic_texts) == (9, {"message.max.bytes": "9"})


def test_loading_the_package_loads_nothing_heavy() -> None:
    program = "import gregor.config.describe, gregor.config.topic, sys; print(*sys.modules)"
    root = SHIPPED.parent.parent
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    heavy = {"asyncio", "socket", "ssl", "inspect", "dataclasses", "difflib", "json", "click", "rich", "logging"}
    assert heavy.isdisjoint(done.stdout.split())


def test_dynamic_setting_replaces_its_synonyms() -> None:
    config = BrokerConfig({"log.retention.minutes": "77"})
    config.update_dynamic({}, {"log.retention.ms": "5"})
    assert (config["log.retention.ms"], config["log.retention.minutes"]) == (5, None)
    config.update_dynamic({}, {})
    assert config["log.retention.minutes"] == 77


def test_secret_is_not_stored_in_zookeeper_in_clear() -> None:
    key = "listener.name.plaintext.ssl.keystore.password"
    with pytest.raises(ConfigError, match="set password.encoder.secret in the properties file") as refusal:
        BrokerConfig({"zookeeper.connect": "localhost:2181"}).check_dynamic({key: "hunter2"}, {})
    assert "hunter2" not in str(refusal.value)
    empty = BrokerConfig({"zookeeper.connect": "localhost:2181", "password.encoder.secret": ""})
    assert [one for one in empty.warnings if "password.encoder.secret is empty" in one]
    with pytest.raises(ConfigError, match="set password.encoder.secret in the properties file"):
        empty.check_dynamic({key: "hunter2"}, {})
    assert BrokerConfig().check_dynamic({key: "hunter2"}, {}).listener_setting("plaintext", "ssl.keystore.password")
