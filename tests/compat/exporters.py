"""Exporters of lag beside a cluster: the programs of kminion, Burrow, kafka_exporter and klag-exporter, and our own Go
program that sends the requests of the first three (go/lag).

The proxy for Go modules answers 403 for github.com/redpanda-data/kminion, github.com/cloudhut/kminion,
github.com/linkedin/Burrow and github.com/danielqsj/kafka_exporter, so that CI cannot build them. klag-exporter is a
crate (0.1.29), which needs a newer Rust than Debian's, and minutes to build. `make exporters EXPORTERS=FOLDER` tests
those whose programs lie in a folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.compat.lag_load import Lags
from tests.support.foreign_clients import RUN_TIMEOUT_S, go_program, or_skip
from tests.support.ports import free_port
from tests.support.programs import RunningProgram

FOLDER_VARIABLE = "GREGOR_EXPORTERS"
INTERVAL_S = 1
"""Between two polls of the exporters that poll by themselves."""


class Place(NamedTuple):
    """The arguments of the start of an exporter."""

    folder: Path
    bootstrap: str
    zookeeper: str
    port: int


class Exporter(NamedTuple):
    """`command` writes the configuration and returns the arguments; `read` returns the lags by the port."""

    program: str
    command: Callable[[Place], Sequence[str]]
    read: Callable[[int], Lags]


def by_pages(name: str, group: str, topic: str, partition: str) -> Callable[[int], Lags]:
    """Return a function that reads this metric with these labels from /metrics."""

    def read(port: int) -> Lags:
        return lags_of_page(fetched(port, "/metrics"), name, group, topic, partition)

    return read


def lags_of_page(page: str, name: str, group: str, topic: str, partition: str) -> Lags:
    """Return the lags of a page. A negative one is kafka_exporter's for a partition without a committed offset."""
    found: Lags = {}
    for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.MULTILINE):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if float(value) >= 0:
            found[of[group], of[topic], int(of[partition])] = int(float(value))
    return found


def fetched(port: int, path: str) -> str:
    """Return a page, "" while the program does not serve it."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def burrow_lags(port: int) -> Lags:
    """Return the lags in Burrow's own interface."""
    clusters = "/v3/kafka/test/consumer"
    groups = json.loads(fetched(port, clusters) or "{}").get("consumers") or []
    found: Lags = {}
    for group in groups:
        status = json.loads(fetched(port, f"{clusters}/{group}/lag") or "{}").get("status") or {}
        for part in status.get("partitions") or []:
            if part["end"] is not None:  # it has read an offset of the group
                found[group, part["topic"], part["partition"]] = part["current_lag"]
    return found


def kafka_exporter(place: Place) -> Sequence[str]:
    servers = [f"--kafka.server={server}" for server in place.bootstrap.split(",")]
    return [*servers, f"--web.listen-address=127.0.0.1:{place.port}"]


def kminion(mode: str) -> Callable[[Place], Sequence[str]]:
    """`mode`: adminApi, or offsetsTopic, which reads __consumer_offsets."""

    def command(place: Place) -> Sequence[str]:
        config = {
            "kafka": {"brokers": place.bootstrap.split(",")},
            "minion": {"consumerGroups": {"enabled": True, "scrapeMode": mode, "granularity": "partition"}},
            "exporter": {"host": "127.0.0.1", "port": place.port},
        }
        (place.folder / "kminion.yaml").write_text(json.dumps(config))  # JSON is YAML
        return []

    return command


def burrow(place: Place) -> Sequence[str]:
    servers = json.dumps(place.bootstrap.split(","))
    (place.folder / "burrow.toml").write_text(
        f"""
[zookeeper]
servers = {json.dumps(place.zookeeper.split(","))}
root-path = "/burrow"
[client-profile.test]
client-id = "burrow"
kafka-version = "2.0.0"
[cluster.test]
class-name = "kafka"
servers = {servers}
client-profile = "test"
topic-refresh = 5
offset-refresh = {INTERVAL_S}
[consumer.test]
class-name = "kafka"
cluster = "test"
servers = {servers}
client-profile = "test"
[httpserver.default]
address = "127.0.0.1:{place.port}"
[storage.default]
class-name = "inmemory"
min-distance = 1
"""
    )
    return ["--config-dir", str(place.folder)]


def klag(place: Place) -> Sequence[str]:
    config = place.folder / "klag.toml"
    config.write_text(
        f"""
[exporter]
poll_interval = "{INTERVAL_S}s"
http_host = "127.0.0.1"
http_port = {place.port}
granularity = "partition"
[[clusters]]
name = "test"
bootstrap_servers = "{place.bootstrap}"
"""
    )
    return ["--config", str(config)]


_KMINION = by_pages("kminion_kafka_consumer_group_topic_partition_lag", "group_id", "topic_name", "partition_id")
EXPORTERS = {
    "kminion": Exporter("kminion", kminion("adminApi"), _KMINION),
    "kminion-topic": Exporter("kminion", kminion("offsetsTopic"), _KMINION),
    "burrow": Exporter("Burrow", burrow, burrow_lags),
    "kafka-exporter": Exporter(
        "kafka_exporter", kafka_exporter, by_pages("kafka_consumergroup_lag", "consumergroup", "topic", "partition")
    ),
    "klag-exporter": Exporter(
        "klag-exporter", klag, by_pages("kafka_consumergroup_group_lag", "group", "topic", "partition")
    ),
}
METHODS = ("kadm", "sarama", "topic")
"""Of go/lag: as kminion, as kafka_exporter, and as Burrow and kminion's other mode, which read __consumer_offsets."""


def given_folder() -> Path | None:
    """Return the folder with the programs of exporters, if there is one."""
    found = os.environ.get(FOLDER_VARIABLE, "")
    return Path(found).absolute() if found else None


def given_exporters() -> list[str]:
    """Return the names of the exporters whose programs the folder has."""
    folder = given_folder()
    return [] if folder is None else [name for name, one in EXPORTERS.items() if (folder / one.program).exists()]


class RunningExporter:
    """A program that was started; a context manager that kills it at the end."""

    def __init__(self, name: str, folder: Path, bootstrap: str, zookeeper: str) -> None:
        programs = given_folder()
        assert programs is not None
        self._exporter = exporter = EXPORTERS[name]
        self._port = free_port()
        arguments = exporter.command(Place(folder, bootstrap, zookeeper, self._port))
        environment = {"CONFIG_FILEPATH": str(folder / "kminion.yaml")}
        self._program = RunningProgram([str(programs / exporter.program), *arguments], folder, environment)

    def __enter__(self) -> RunningExporter:
        self._program.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._program.__exit__(*exception)

    def lags(self) -> Lags:
        """Return what it shows now. Raises AssertionError if it has ended."""
        self._program.check()
        return self._exporter.read(self._port)

    def log(self) -> str:
        return self._program.log()


def lags_by(method: str, bootstrap: str) -> Lags:
    """Return the lags that the Go program computes."""
    program = or_skip(go_program, "lag")
    done = subprocess.run(
        [str(program), method, bootstrap], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found: Lags = {}
    for line in done.stdout.splitlines():
        group, topic, partition, lag = line.split()
        found[group, topic, int(partition)] = int(lag)
    return found
