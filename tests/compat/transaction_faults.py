"""Rounds of faults under a consume-transform-produce loop: in each phase clients and brokers are killed, brokers are
frozen, and links of the network are cut."""

from __future__ import annotations

import itertools
import math
import pathlib
import random
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import FindCoordinatorRequest
from tests.compat.copiers.launch import PHASES
from tests.compat.exactly_once import WAIT_S, Copier, Work
from tests.compat.records import until
from tests.compat.transaction_version import OLD, used_by
from tests.support.wire import ask_at

GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1
FED = 30
"""Records for each input partition, before a fault and after it."""
LONGEST_UNDER_WAY_S = 0.03
FROZEN_S = 8.0
"""Longer than the session timeout in ZooKeeper: the broker continues as one that has been replaced."""
FROZEN = "frozen "
CUT = "cut"
"""The broker that has a part of `PARTS` is cut from one kind of its peers."""
PARTS = ("coordinator", "leader", "group coordinator")
CUT_S = (2.0, FROZEN_S)
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
    """The brokers under test, by their ids, and the network between them and the copiers."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def cuts(self) -> Sequence[str]:
        """The kinds of peers that a broker can be cut from."""

    def on_copiers_host(self, command: list[str]) -> list[str]: ...

    def kill(self, broker_id: int) -> None: ...

    def send(self, broker_id: int, number: signal.Signals) -> None: ...

    def start(self, broker_id: int) -> None: ...

    def cut(self, broker_id: int, peers: str) -> None:
        """Lose all packets between the broker and these peers, one of `cuts`, in both directions."""

    def mend(self) -> None: ...


class Faults:
    """Plays rounds; in each, a victim is killed, frozen or cut off while a copier is held in a phase, or just behind
    it."""

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
        part = self._dice.choice(PARTS) if victim == CUT else victim.removeprefix(FROZEN)
        broker_id = None if victim == "client" else self._broker_of(part, copier)
        if under_way:
            copier.resume()
            time.sleep(self._dice.uniform(0, LONGEST_UNDER_WAY_S))
        if broker_id is None:
            copier.kill()
            copier.start()
        elif victim == CUT:
            self._cut(broker_id, None if under_way else copier)
        elif victim.startswith(FROZEN):
            self._freeze(broker_id, None if under_way else copier)
        else:
            self._kill(broker_id, None if under_way else copier)
        go_through(self._work, self._copiers)

    def _kill(self, broker_id: int, held: Copier | None) -> None:
        self._brokers.kill(broker_id)
        if held is not None:
            held.resume()
        time.sleep(self._dice.choice([0, 0, 1]))
        self._brokers.start(broker_id)

    def _freeze(self, broker_id: int, held: Copier | None) -> None:
        """Stop the broker until the others have replaced it."""
        self._brokers.send(broker_id, signal.SIGSTOP)
        try:
            if held is not None:
                held.resume()
            time.sleep(FROZEN_S)
        finally:
            self._brokers.send(broker_id, signal.SIGCONT)

    def _cut(self, broker_id: int, held: Copier | None) -> None:
        """Cut the broker off for a moment, or until it may have been replaced; it serves its other peers meanwhile."""
        peers, length_s = self._dice.choice(self._brokers.cuts), self._dice.choice(CUT_S)
        print(f"broker {broker_id} without {peers} for {length_s:.0f} s", flush=True)
        self._brokers.cut(broker_id, peers)
        try:
            if held is not None:
                held.resume()
            time.sleep(length_s)
        finally:
            self._brokers.mend()

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
            answer = ask_at(address, FindCoordinatorRequest(key=key, key_type=key_type), 1)
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
    launch = brokers.on_copiers_host
    with Work(folder, brokers.bootstrap, "loop", inputs=len(kinds), replicas=replicas, launch=launch) as work:
        copiers = [work.copier(kind, [partition]) for partition, kind in enumerate(kinds)]
        for copier in copiers:
            copier.until_printed("ready")
        faults = Faults(brokers, work, copiers, dice)
        pairs = pairs_of(dice.sample(victims, len(victims)), dice.sample(PHASES, len(PHASES)))
        for number, (victim, phase) in enumerate(itertools.islice(pairs, rounds)):
            print(f"round {number} of {rounds}: {victim}, {phase}", flush=True)
            try:
                faults.play(number, victim, phase)
            except AssertionError as failure:
                failure.add_note(f"in round {number} of {rounds}: {victim}, {phase}")
                raise
        assert work.finish(), "no transaction was aborted"
    expected = {one.transactional_id: {level if one.kind in USE_NEW_PROTOCOL else OLD} for one in copiers}
    used = used_by(brokers.bootstrap)
    assert used == expected, f"the copiers used {used} of transaction.version"
