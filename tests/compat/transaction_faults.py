"""Rounds of faults under a consume-transform-produce loop: clients and brokers are killed in each phase."""

from __future__ import annotations

import itertools
import math
import pathlib
import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import FindCoordinatorRequest
from tests.compat.copiers.launch import PHASES
from tests.compat.exactly_once import WAIT_S, Copier, Work
from tests.compat.records import until
from tests.compat.transaction_version import OLD, used_by
from tests.support.mixed_cluster import MixedCluster
from tests.support.processes import BrokerProcess
from tests.support.wire import ask

GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1
FED = 30
"""Records for each input partition, before a fault and after it."""
LONGEST_UNDER_WAY_S = 0.03
FROZEN_S = 8.0
"""Longer than the session timeout in ZooKeeper: the broker continues as one that has been replaced."""
FROZEN = "frozen "
COPIERS = ("java", "confluent", "java-3.9")
NEWER_COPIERS = ("java", "confluent", "java-4.4")
"""For rounds at transaction.version 2."""
USE_NEW_PROTOCOL = ("java", "java-4.4")
"""These use the protocol of transaction.version 2 where it is finalised."""
CLUSTER_SETTINGS = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
}
SINGLE_SETTINGS = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
}


class Brokers(Protocol):
    """The brokers under test, by their ids."""

    @property
    def bootstrap(self) -> str: ...

    def process(self, broker_id: int) -> BrokerProcess: ...

    def start(self, broker_id: int) -> None: ...


class OneBroker:
    """A gregor broker with its own metadata store."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def process(self, broker_id: int) -> BrokerProcess:
        return self._broker

    def start(self, broker_id: int) -> None:
        self._broker.start()


class OfCluster:
    """Brokers on a ZooKeeper, of either kind."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def process(self, broker_id: int) -> BrokerProcess:
        return self._cluster.brokers[broker_id]

    def start(self, broker_id: int) -> None:
        self._cluster.start(broker_id)


@contextmanager
def clustered(folder: pathlib.Path, kinds: list[str], settings: dict[str, str]) -> Iterator[OfCluster]:
    """Start brokers of these kinds on a ZooKeeper."""
    with MixedCluster(folder, kinds, settings) as cluster:
        cluster.start()
        yield OfCluster(cluster)


class Faults:
    """Plays rounds; in each, a victim is killed or frozen while a copier is held in a phase, or just behind it."""

    def __init__(self, brokers: Brokers, work: Work, copiers: list[Copier], dice: random.Random) -> None:
        self._brokers = brokers
        self._work = work
        self._copiers = copiers
        self._dice = dice

    def play(self, number: int, victim: str, phase: str) -> None:
        """Return when every copier has committed a transaction after the fault."""
        copier = self._copiers[number % len(self._copiers)]
        copier.hold(phase)
        self._work.feed(FED)
        copier.until_held(phase)
        under_way = phase == "ending" or self._dice.random() < 0.3
        broker_id = None if victim == "client" else self._broker_of(victim.removeprefix(FROZEN), copier)
        if under_way:
            copier.resume()
            time.sleep(self._dice.uniform(0, LONGEST_UNDER_WAY_S))
        if broker_id is None:
            copier.kill()
            copier.start()
        elif victim.startswith(FROZEN):
            self._freeze(broker_id, None if under_way else copier)
        else:
            self._kill(broker_id, None if under_way else copier)
        go_through(self._work, self._copiers)

    def _kill(self, broker_id: int, held: Copier | None) -> None:
        self._brokers.process(broker_id).kill()
        if held is not None:
            held.resume()
        time.sleep(self._dice.choice([0, 0, 1]))
        self._brokers.start(broker_id)

    def _freeze(self, broker_id: int, held: Copier | None) -> None:
        """Stop the broker until the others have replaced it."""
        process = self._brokers.process(broker_id)
        process.send(signal.SIGSTOP)
        try:
            if held is not None:
                held.resume()
            time.sleep(FROZEN_S)
        finally:
            process.send(signal.SIGCONT)

    def _broker_of(self, victim: str, copier: Copier) -> int:
        """Return the broker that has this part just now."""
        bootstrap = self._brokers.bootstrap
        found: list[int] = []

        def known() -> bool:
            if victim == "coordinator":
                found[:] = coordinator_of(bootstrap, copier.transactional_id, TRANSACTION_COORDINATOR)
            elif victim == "group coordinator":
                found[:] = coordinator_of(bootstrap, self._work.group, GROUP_COORDINATOR)
            elif victim == "leader":
                found[:] = leaders_of(bootstrap, self._work.output)[:1]
            else:
                found[:] = [0]
            return bool(found)

        until(known, f"the {victim}", WAIT_S)
        return found[0]


def go_through(work: Work, copiers: list[Copier]) -> None:
    """Wait until each copier has committed further transactions."""
    printed = [copier.printed() for copier in copiers]
    work.feed(FED)
    for copier, beyond in zip(copiers, printed, strict=True):
        copier.until_committed(beyond)


def coordinator_of(bootstrap: str, key: str, key_type: int) -> list[int]:
    """Return the coordinator's broker id; empty while none is known."""
    for address in bootstrap.split(","):
        try:
            answer = ask(int(address.rpartition(":")[2]), FindCoordinatorRequest(key=key, key_type=key_type), 1)
        except OSError:
            continue
        if answer.error_code == ErrorCode.NONE:
            return [answer.node_id]
    return []


def leaders_of(bootstrap: str, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        described = admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S)
    except KafkaException:
        return []
    return [part.leader.id for part in described.partitions if part.leader is not None]


def pairs_of(victims: Sequence[str], phases: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield all pairs again and again; the first ones have each victim and each phase already."""
    together = math.lcm(len(victims), len(phases))
    for number in itertools.count():
        yield victims[number % len(victims)], phases[(number + number // together) % len(phases)]


def play(
    brokers: Brokers,
    folder: pathlib.Path,
    victims: Sequence[str],
    rounds: int,
    replicas: int,
    kinds: Sequence[str] = COPIERS,
    level: int = OLD,
) -> None:
    """Play rounds with the victims in the phases, in an order that the number of rounds and the level decide, and
    judge. `level` is the finalised one of transaction.version, which the copiers must have used."""
    dice = random.Random(f"{rounds} {level}")
    with Work(folder, brokers.bootstrap, "loop", inputs=len(kinds), replicas=replicas) as work:
        copiers = [work.copier(kind, [partition]) for partition, kind in enumerate(kinds)]
        for copier in copiers:
            copier.until_printed("ready")
        faults = Faults(brokers, work, copiers, dice)
        pairs = pairs_of(dice.sample(victims, len(victims)), dice.sample(PHASES, len(PHASES)))
        for number, (victim, phase) in enumerate(itertools.islice(pairs, rounds)):
            try:
                faults.play(number, victim, phase)
            except AssertionError as failure:
                failure.add_note(f"in round {number} of {rounds}: {victim}, {phase}")
                raise
        assert work.finish(), "no transaction was aborted"
    expected = {one.transactional_id: {level if one.kind in USE_NEW_PROTOCOL else OLD} for one in copiers}
    used = used_by(brokers.bootstrap)
    assert used == expected, f"the copiers used {used} of transaction.version"
