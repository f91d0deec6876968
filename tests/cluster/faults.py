"""The faults of a run: their kinds, order and duration, planned from a seed, and the functions that cause them."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.cluster.clients import Load
from tests.cluster.cluster import Cluster
from tests.cluster.network import CLIENTS
from tests.cluster.servers import SESSION_MS

WHOLE_TIMEOUT_S = 120.0
SESSION_S = SESSION_MS / 1000
CLOSED_WITHIN_S = SESSION_S / 2
"""After a kill; the timeout itself ends a session after two thirds of it at the earliest, as its client pings after a
third."""
RESET_EVERY_S = 0.4
LEFT_OPEN = "which this broker's last process has left open"
ENDED_ALREADY = "of this broker's last process has ended already"
STILL_REGISTERED = "is still registered"
"""Parts of lines of a broker that starts."""


class Fault(NamedTuple):
    """One thing to break: `kind` in KINDS, for `hold_s`; `victim` and `other` are different broker ids, but `other` is
    no broker's where there is one broker."""

    kind: str
    victim: int
    other: int
    hold_s: float

    def __str__(self) -> str:
        return f"{self.kind} ({self.victim}, {self.other}; {self.hold_s:.1f} s)"


class Scene(NamedTuple):
    """The objects that faults act on."""

    cluster: Cluster
    load: Load


Act = Callable[[Scene, Fault], None]


def _kill(scene: Scene, fault: Fault) -> None:
    """As kill -9 does: the session watcher stays, and closes the session at once."""
    broker = scene.cluster.brokers[fault.victim]
    broker.kill()
    killed_s = time.monotonic()
    if broker.is_watched and fault.hold_s > CLOSED_WITHIN_S:
        closed = functools.partial(_is_gone, scene, fault.victim)
        scene.cluster.wait_until(closed, CLOSED_WITHIN_S, f"the session of {broker.name}, which was killed, is closed")
    time.sleep(max(0.0, killed_s + fault.hold_s - time.monotonic()))
    broker.start()


def _is_gone(scene: Scene, number: int) -> bool:
    return scene.cluster.session_of(number) is None


def _kill_with_watcher(scene: Scene, fault: Fault) -> None:
    """The broker closes the session of its last process when it starts again."""
    broker = scene.cluster.brokers[fault.victim]
    session = scene.cluster.session_of(fault.victim)
    broker.kill_with_watcher()
    time.sleep(fault.hold_s)
    broker.start()
    _wait_until_registered(scene, fault.victim, session)
    printed = broker.printed(broker.starts)
    if broker.is_watched and LEFT_OPEN not in printed and (ENDED_ALREADY not in printed or STILL_REGISTERED in printed):
        raise AssertionError(f"{broker.name} has not closed the session of its last process")


def _wait_until_registered(scene: Scene, number: int, last_session: int | None) -> None:
    def registered() -> bool:
        scene.cluster.start_ended()
        return scene.cluster.session_of(number) not in (None, last_session)

    name = scene.cluster.brokers[number].name
    scene.cluster.wait_until(registered, WHOLE_TIMEOUT_S, f"{name} is registered in another session")


def _kill_all(scene: Scene, fault: Fault) -> None:
    """No record is lost: the kernel still has all written bytes."""
    for broker in scene.cluster.brokers:
        broker.kill()
    time.sleep(fault.hold_s)
    for broker in scene.cluster.brokers:
        broker.start()


def _cut_power(scene: Scene, fault: Fault) -> None:
    """Lose all data that the broker had not flushed, or a part of it. Nothing is left that could close the session: it
    ends at its timeout, and the note of it is of an earlier boot."""
    broker = scene.cluster.brokers[fault.victim]
    session = scene.cluster.session_of(fault.victim)
    broker.kill_with_watcher()
    broker.lose_unflushed(random.Random(str(fault)))
    broker.boot_machine()
    time.sleep(fault.hold_s)
    if fault.hold_s < CLOSED_WITHIN_S and session not in (None, scene.cluster.session_of(fault.victim)):
        raise AssertionError(f"the session of {broker.name}, whose machine lost power, has been closed")
    broker.start()
    _wait_until_registered(scene, fault.victim, session)
    if LEFT_OPEN in broker.printed(broker.starts):
        raise AssertionError(f"{broker.name} has closed a session that its note has from an earlier boot")


def _kill_member(scene: Scene, fault: Fault) -> None:
    groups = sorted(scene.load.groups)
    members = scene.load.groups[groups[fault.victim % len(groups)]]
    members[fault.other % len(members)].kill_and_start()


def _kill_controller(scene: Scene, fault: Fault) -> None:
    controller = scene.cluster.controller()
    _kill(scene, fault if controller is None else fault._replace(victim=controller))


def _pause(scene: Scene, fault: Fault) -> None:
    broker = scene.cluster.brokers[fault.victim]
    broker.pause()
    time.sleep(fault.hold_s)
    broker.resume()


def _pause_controller(scene: Scene, fault: Fault) -> None:
    controller = scene.cluster.controller()
    _pause(scene, fault if controller is None else fault._replace(victim=controller))


def _cut(scene: Scene, fault: Fault, *others: str) -> None:
    for other in others:
        scene.cluster.network.cut(scene.cluster.brokers[fault.victim].name, other)
    time.sleep(fault.hold_s)
    scene.cluster.network.mend_all()


def _cut_peer(scene: Scene, fault: Fault) -> None:
    _cut(scene, fault, scene.cluster.brokers[fault.other].name)


def _cut_peers(scene: Scene, fault: Fault) -> None:
    _cut(scene, fault, *(broker.name for broker in scene.cluster.brokers if broker.number != fault.victim))


def _cut_zookeeper(scene: Scene, fault: Fault) -> None:
    _cut(scene, fault, scene.cluster.zookeeper.name)


def _cut_clients(scene: Scene, fault: Fault) -> None:
    _cut(scene, fault, CLIENTS)


def _reset(scene: Scene, fault: Fault) -> None:
    """Reset the victim's connections to ZooKeeper and its peers over and over, at each end in turn. Its session is not
    over after that: there is time for several connections within its timeout."""
    network, victim = scene.cluster.network, scene.cluster.brokers[fault.victim].name
    session = scene.cluster.session_of(fault.victim)
    others = [other for other in network.others(victim) if other != CLIENTS]
    resets, deadline_s = 0, time.monotonic() + fault.hold_s
    while time.monotonic() < deadline_s:
        for other in others:
            resets += network.reset(victim, other) + network.reset(other, victim)
        time.sleep(RESET_EVERY_S)
    time.sleep(SESSION_S + 2)  # a broker that does not connect again has lost its session by then
    if not resets:
        raise AssertionError(
            f"no connection of {victim} was reset: it has none, or the kernel lacks CONFIG_INET_DIAG_DESTROY"
        )
    if scene.cluster.session_of(fault.victim) != session:
        raise AssertionError(f"the session of {victim}, whose connections were reset, has ended")


def _isolate(scene: Scene, fault: Fault) -> None:
    _cut(scene, fault, *scene.cluster.network.others(scene.cluster.brokers[fault.victim].name))


def _kill_zookeeper(scene: Scene, fault: Fault) -> None:
    scene.cluster.zookeeper.kill()
    time.sleep(fault.hold_s)
    scene.cluster.zookeeper.start()


def _pause_zookeeper(scene: Scene, fault: Fault) -> None:
    scene.cluster.zookeeper.pause()
    time.sleep(fault.hold_s)
    scene.cluster.zookeeper.resume()


def _full_disk(scene: Scene, fault: Fault) -> None:
    """Fill the disk; the broker may end because of it, and a broker that stays up writes again when there is room."""
    broker = scene.cluster.brokers[fault.victim]
    scene.cluster.may_end.add(broker.name)
    broker.fill_disk()
    broker.wait(fault.hold_s)
    broker.free_disk()
    if not broker.running:
        broker.start()


def _rolling_restart(scene: Scene, fault: Fault) -> None:
    """Every broker in turn, each when the cluster is whole again; they end by themselves and with success."""
    brokers = scene.cluster.brokers
    for broker in (*brokers[fault.victim :], *brokers[: fault.victim]):
        code = broker.stop()
        # The JVM's own answer to SIGTERM is 143.
        if code not in (0, 143):
            raise AssertionError(f"{broker.name} ended with exit code {code}")
        broker.start()
        scene.cluster.wait_until_whole(WHOLE_TIMEOUT_S)


class Kind(NamedTuple):
    act: Act
    shortest_s: float
    longest_s: float
    needs_peers: bool = False
    """Whether it breaks what is between brokers, or loses what only another broker still has, or is the same as another
    kind where there is one broker."""


RESET = "reset connections"
KINDS: dict[str, Kind] = {
    "kill": Kind(_kill, 0, SESSION_S + 4),
    "kill controller": Kind(_kill_controller, 0, SESSION_S + 4, needs_peers=True),
    "kill with its watcher": Kind(_kill_with_watcher, 0, 1),
    "kill all brokers": Kind(_kill_all, 0, SESSION_S + 4, needs_peers=True),
    "cut the power": Kind(_cut_power, 0, SESSION_S + 4, needs_peers=True),
    "kill a group's member": Kind(_kill_member, 0, 0),
    "rolling restart": Kind(_rolling_restart, 0, 0),
    "pause beyond the session": Kind(_pause, SESSION_S + 2, SESSION_S + 8),
    "pause controller beyond the session": Kind(_pause_controller, SESSION_S + 2, SESSION_S + 8, needs_peers=True),
    "pause": Kind(_pause, 0.5, SESSION_S - 3),
    "cut two brokers": Kind(_cut_peer, 2, 15, needs_peers=True),
    "cut a broker from its peers": Kind(_cut_peers, 2, 15, needs_peers=True),
    "cut a broker from ZooKeeper": Kind(_cut_zookeeper, 2, SESSION_S + 8),
    "cut a broker from clients": Kind(_cut_clients, 2, 12),
    "isolate a broker": Kind(_isolate, 2, SESSION_S + 8),
    RESET: Kind(_reset, 0.5, SESSION_S / 3),
    "kill ZooKeeper": Kind(_kill_zookeeper, 0, SESSION_S + 4),
    "pause ZooKeeper": Kind(_pause_zookeeper, 1, SESSION_S + 4),
    "full disk": Kind(_full_disk, 4, 8),
}


def kinds_of(brokers: int) -> list[str]:
    """Return the kinds of faults that a cluster of so many brokers may have."""
    return [name for name, kind in KINDS.items() if brokers > 1 or not kind.needs_peers]


def plan(seed: int, brokers: int, kinds: list[str] | None = None) -> Iterator[Fault]:
    """Without end: all kinds in a shuffled order, and again. The same arguments give the same faults."""
    dice = random.Random(seed)
    names = list(kinds or kinds_of(brokers))
    while True:
        dice.shuffle(names)
        for name in names:
            victim, other = dice.sample(range(brokers), 2) if brokers > 1 else (0, dice.randint(1, 2))
            yield Fault(name, victim, other, dice.uniform(KINDS[name].shortest_s, KINDS[name].longest_s))
