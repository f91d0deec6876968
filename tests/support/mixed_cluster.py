"""Brokers on one ZooKeeper, each of them gregor, of this or an earlier commit, or Apache Kafka 3.9.1, and each on the
others' data folder."""

from __future__ import annotations

import contextlib
import json
import logging
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.earlier_gregor import EarlierGregor
from tests.support.kafka_process import KafkaProcess
from tests.support.processes import BrokerProcess, free_port
from tests.support.zookeeper import ZooKeeperProcess, retry

GREGOR, EARLIER, KAFKA = "gregor", "earlier gregor", "kafka"
WAIT_S = 120.0
"""For a state of the cluster, on a busy machine."""
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "30000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "6000",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
}
ONLY_KAFKA = {
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "controlled.shutdown.retry.backoff.ms": "500",
}
"""Small pools, so that several fit beside each other."""


def _quiet() -> logging.Logger:
    """Its connection ends with the server's, at each end of a test."""
    logger = logging.getLogger("tests.support.mixed_cluster")
    logger.setLevel(logging.CRITICAL)
    return logger


class MixedCluster:
    """`kinds` are the kinds of the brokers 0, 1, ... A context manager: starts ZooKeeper, not the brokers. Ports, data
    folders and numbers stay when `become` makes a broker of the other kind."""

    def __init__(
        self,
        folder: pathlib.Path,
        kinds: Sequence[str],
        overrides: dict[str, str] | None = None,
        jvm: tuple[str, ...] | None = None,
        tick_ms: int = 500,
        more: Callable[[int, int], dict[str, str]] | None = None,
    ) -> None:
        """`more` returns settings of one broker, by its number and its port."""
        self.folder = folder
        self.zookeeper = ZooKeeperProcess(folder / "zookeeper", tick_ms)
        self._overrides = overrides or {}
        self._jvm = jvm
        self._more = more or (lambda broker_id, port: {})
        self._ports = [free_port() for _ in kinds]
        self.kinds = list(kinds)
        self.brokers: list[BrokerProcess] = []
        self._client: KazooClient | None = None

    def _make(self, broker_id: int) -> BrokerProcess:
        port, kind = self._ports[broker_id], self.kinds[broker_id]
        folder = self.folder / f"broker-{broker_id}"
        settings = {
            **SETTINGS,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": self.zookeeper.connect,
            **self._overrides,
            **self._more(broker_id, port),
        }
        if kind == KAFKA:
            return KafkaProcess(folder, {**ONLY_KAFKA, **settings}, port, self._jvm)
        return (EarlierGregor if kind == EARLIER else BrokerProcess)(folder, settings, port)

    # -- brokers ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def start(self, *broker_ids: int) -> None:
        """These, or all; returns when they are registered and answer. They start at the same time."""
        chosen = broker_ids or range(len(self.brokers))
        for broker_id in chosen:
            if self.kinds[broker_id] == KAFKA:
                self._wait_until_forgotten(broker_id)
            self.brokers[broker_id].start(wait_until_ready=False)
        for broker_id in chosen:
            self.wait_until_ready(broker_id)

    def _wait_until_forgotten(self, broker_id: int) -> None:
        """Apache Kafka does not start while its registration of before a crash is there; gregor waits for its end."""
        deadline = time.monotonic() + WAIT_S
        while broker_id in self.registered():
            assert time.monotonic() < deadline, f"broker {broker_id} is still registered"
            time.sleep(0.05)

    def wait_until_ready(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        self._wait(broker_id, lambda: broker.is_ready() and broker_id in self.registered())

    def _wait(self, broker_id: int, started: Callable[[], bool]) -> None:
        broker = self.brokers[broker_id]
        deadline = time.monotonic() + max(broker.start_timeout_s, 2 * WAIT_S)
        while not started():
            assert broker.process is not None
            if broker.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"broker {broker_id} ({self.kinds[broker_id]}) did not start:\n{broker.log()}")
            time.sleep(0.05)

    def restart(self, broker_id: int, settings: Mapping[str, str]) -> None:
        """Stop the broker in order and start it with these settings, too; returns when it is registered. It may have
        no listener in clear text any more."""
        broker = self.brokers[broker_id]
        assert broker.stop() == 0
        self._wait_until_forgotten(broker_id)
        broker.overrides |= settings
        broker.start(wait_until_ready=False)
        self._wait(broker_id, lambda: broker_id in self.registered())

    def become(self, broker_id: int, kind: str) -> None:
        """Another kind of broker on the same folder, port and number; not started yet. The old one has ended."""
        process = self.brokers[broker_id].process
        assert process is None or process.poll() is not None, "still running"
        self.kinds[broker_id] = kind
        self.brokers[broker_id] = self._make(broker_id)

    # -- state in ZooKeeper ----------------------------------------------------------------------------------------

    @property
    def store(self) -> KazooClient:
        assert self._client is not None, "not entered"
        return self._client

    def node(self, path: str) -> Any:
        """Return the JSON of a node; None if there is no such node."""
        try:
            return json.loads(self.store.retry(self.store.get, path)[0])
        except NoNodeError:
            return None

    def registered(self) -> set[int]:
        try:
            return {int(name) for name in self.store.retry(self.store.get_children, "/brokers/ids")}
        except NoNodeError:
            return set()

    def controller(self) -> int | None:
        node = self.node("/controller")
        return None if node is None else int(node["brokerid"])

    def force_controller(self, broker_id: int) -> None:
        """Remove the controller's node until this broker is the controller."""
        deadline = time.monotonic() + WAIT_S
        while (holder := self.controller()) != broker_id:
            assert time.monotonic() < deadline, f"broker {broker_id} does not become controller"
            if holder is not None:
                with contextlib.suppress(NoNodeError):
                    self.store.retry(self.store.delete, "/controller")
            time.sleep(0.05)

    def state(self, topic: str, partition: int) -> Any:
        """leader, leader_epoch, isr, controller_epoch."""
        return self.node(f"/brokers/topics/{topic}/partitions/{partition}/state")

    # -- begin and end ---------------------------------------------------------------------------------------------

    def __enter__(self) -> MixedCluster:
        self.zookeeper.start()
        self._client = KazooClient(self.zookeeper.connect, timeout=20, command_retry=retry(), logger=_quiet())
        self._client.start(timeout=WAIT_S)
        self.brokers = [self._make(broker_id) for broker_id in range(len(self.kinds))]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers:
            broker.kill()
        if self._client is not None:
            self._client.stop()
            self._client.close()
        self.zookeeper.kill()
