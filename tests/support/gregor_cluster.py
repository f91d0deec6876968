"""A ZooKeeper and some gregor brokers, each a process of its own, for tests of clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from signal import SIGCONT, SIGSTOP

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from gregor.replication.store import nodes
from tests.support.processes import BrokerProcess, answers_metadata
from tests.support.zookeeper import ZooKeeperEnsemble, ZooKeeperProcess, retry

PATIENCE_S = 120.0
"""How long a test waits for a state, on a busy machine as well."""
SESSION_TIMEOUT_MS = 6000
QUICK: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "4",
    "num.recovery.threads.per.data.dir": "1",
}
REPLICATED: Mapping[str, str] = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "min.insync.replicas": "2",
}
"""Every topic survives the loss of one of three brokers."""
LOG_TAIL_LINES = 60


def until(
    holds: Callable[[], bool],
    what: str,
    timeout_s: float = PATIENCE_S,
    *,
    explanation: Callable[[], str] = lambda: "",
) -> None:
    """Wait until it holds; `what` and the explanation are for the message if it does not come to pass."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"not within {timeout_s:.0f} s: {what}{explanation()}"
        time.sleep(0.05)


class GregorCluster:
    """Brokers `first_id`, `first_id` + 1, … with their data below `folder`, on free ports. A context manager: started
    as a whole, and everything is killed at the end.

    `zookeeper`: one that runs already, and is left running; `overrides` are settings of all brokers.
    """

    def __init__(
        self,
        folder: Path,
        brokers: int = 3,
        overrides: Mapping[str, str] | None = None,
        *,
        zookeeper: ZooKeeperProcess | ZooKeeperEnsemble | None = None,
        first_id: int = 0,
        tick_ms: int = 500,
    ) -> None:
        self.folder = folder
        self.zookeeper = zookeeper or ZooKeeperProcess(folder / "zookeeper", tick_ms)
        self.brokers: dict[int, BrokerProcess] = {}
        self._own_zookeeper = zookeeper is None
        self._settings = {**QUICK, **(overrides or {})}
        self._stack = ExitStack()
        self._client: KazooClient | None = None
        for broker_id in range(first_id, first_id + brokers):
            self.add(broker_id)

    def add(self, broker_id: int, overrides: Mapping[str, str] | None = None) -> BrokerProcess:
        """One more broker, not started."""
        settings = {"zookeeper.connect": self.zookeeper.connect, "broker.id": str(broker_id)}
        broker = BrokerProcess(self.folder / f"broker-{broker_id}", {**settings, **self._settings, **(overrides or {})})
        self.brokers[broker_id] = broker
        return broker

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    # -- life ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> GregorCluster:
        try:
            if self._own_zookeeper:
                self._stack.enter_context(self.zookeeper)
            for broker in self.brokers.values():
                broker.start(wait_until_ready=False)
            self.until_serving()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for broker_id, broker in self.brokers.items():
            if broker.process is not None and broker.process.poll() is None:
                self.resume(broker_id)
                broker.kill()
        if self._client is not None:
            self._client.stop()
            self._client.close()
            self._client = None
        self._stack.close()

    def start(self, broker_id: int) -> None:
        """Start it, or start it again; returns when it serves."""
        self.brokers[broker_id].start(wait_until_ready=False)
        self.until_serving([broker_id])

    def kill(self, broker_id: int) -> None:
        """kill -9: its session watcher ends its registration."""
        self.brokers[broker_id].kill()

    def stop(self, broker_id: int) -> int:
        """SIGTERM; the exit code."""
        return self.brokers[broker_id].stop()

    def suspend(self, broker_id: int) -> None:
        process = self.brokers[broker_id].process
        assert process is not None, "not started"
        process.send_signal(SIGSTOP)

    def resume(self, broker_id: int) -> None:
        process = self.brokers[broker_id].process
        assert process is not None, "not started"
        process.send_signal(SIGCONT)

    # -- states ----------------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until it holds; a failure shows the ends of all brokers' logs."""
        until(holds, what, timeout_s, explanation=self.log_tails)

    def log_tails(self) -> str:
        """Return the last lines that each broker has logged, and whether it runs."""
        tails = []
        for broker_id, broker in self.brokers.items():
            status = None if broker.process is None else broker.process.poll()
            state = "not started" if broker.process is None else "running" if status is None else f"status {status}"
            lines = broker.log().splitlines()[-LOG_TAIL_LINES:]
            tails.append("\n".join([f"--- broker {broker_id}, {state}, the end of its log:", *lines]))
        return "\n" + "\n".join(tails)

    def until_serving(self, ids: Iterable[int] | None = None, timeout_s: float = PATIENCE_S) -> None:
        """Until these brokers (all of them) answer with metadata that names a controller."""
        for broker_id in self.brokers if ids is None else ids:
            broker = self.brokers[broker_id]

            def serves(broker: BrokerProcess = broker) -> bool:
                assert broker.process is not None
                assert broker.process.poll() is None, f"the broker ended:\n{broker.log()}"
                return answers_metadata(broker.port)

            self.until(serves, f"broker {broker_id} serves", timeout_s)

    @property
    def nodes(self) -> KazooClient:
        """A session of the test's own in ZooKeeper; connected on first use."""
        if self._client is None:
            self._client = KazooClient(self.zookeeper.connect, timeout=30, command_retry=retry())
            self._client.start(timeout=PATIENCE_S)
        return self._client

    def registered(self) -> set[int]:
        """Return the brokers that are registered in ZooKeeper."""
        return {int(name) for name in self.nodes.retry(self.nodes.get_children, nodes.BROKER_IDS)}

    def controller(self) -> int | None:
        """By its node."""
        try:
            return nodes.decode_controller(self.nodes.retry(self.nodes.get, nodes.CONTROLLER)[0])
        except NoNodeError:
            return None

    def partition(self, topic: str, index: int = 0) -> nodes.PartitionState | None:
        """Leader, epoch and ISR, by its node; None where there is none yet."""
        try:
            return nodes.decode_state(self.nodes.retry(self.nodes.get, nodes.state_path(topic, index))[0])
        except NoNodeError:
            return None

    def until_led(self, topic: str, index: int = 0, *, not_by: int | None = None) -> int:
        """Until a registered broker (not `not_by`) leads; which."""
        leader = -1

        def led() -> bool:
            nonlocal leader
            state = self.partition(topic, index)
            leader = -1 if state is None else state.leader
            return leader >= 0 and leader != not_by and leader in self.registered()

        self.until(led, f"{topic}-{index} has a leader other than {not_by}")
        return leader

    def until_isr(self, topic: str, isr: Iterable[int], index: int = 0) -> None:
        """Until these brokers, in any order, are in sync."""
        wanted = set(isr)

        def holds() -> bool:
            state = self.partition(topic, index)
            return state is not None and set(state.isr) == wanted

        self.until(holds, f"{topic}-{index} has the ISR {sorted(wanted)}")
