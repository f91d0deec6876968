"""Models of the process that closes the session of a broker that has died, and of the note for the next broker.

gregor's own code writes and reads their messages, and decides when a session is handed over and when a predecessor's is
closed. Here a session is closed late, or never, as the process or its link to ZooKeeper fails.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gregor.broker.session_watcher.closing import LONGEST_S
from gregor.broker.session_watcher.messages import Watched, encode_broker, encode_farewell, encode_session
from gregor.broker.session_watcher.process import decisive
from gregor.broker.session_watcher.session_end import Session, SessionNotClosed, Wrap
from tests.simulation.loop import owner

if TYPE_CHECKING:
    from tests.simulation.loop import Process
    from tests.simulation.world import World

UNWATCHED_SEEDS = 0.4
"""The share of the seeds whose brokers have no watcher, as with `gregor.session.watcher=false`."""
SOON_S = 0.3
LATE_S = 8.0
"""Longer than most brokers are away: the broker is registered in another session by then."""
LOST, LATE = 0.15, 0.25
"""The shares of the watchers that are killed with their brokers, and of those that are late."""
ATTEMPT_EVERY_S = 0.5


class Note:
    """The counterpart of SessionNote, on the disk of a machine: it counts until the machine boots anew."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def write(self, session: Session) -> None:
        self._session = session

    def remove(self) -> None:
        self._session = None

    def read(self) -> Session | None:
        return self._session


class Watcher:
    """The counterpart of SessionWatcher: the hand-over to a process, whose messages are kept here."""

    def __init__(self, watchers: SessionWatchers) -> None:
        self._watchers = watchers
        self._received = b""
        self._last_id = 0
        self._farewell = False
        self._process: Process | None = None

    def start(self, settings: Mapping[str, str]) -> None:
        self._process = owner()
        self._received = decisive(encode_broker("a simulated broker", "", settings))

    def watch(self, session: Session) -> None:
        self._received = decisive(self._received + encode_session(session))
        self._last_id = session.session_id

    def close(self) -> None:
        """The farewell; the process has read it before the broker ends."""
        self._received = decisive(self._received + encode_farewell())
        self._farewell = True

    def leave_session(self) -> None:
        """The broker ends without a farewell, which is what `broker_ended` finds."""

    def broker_ended(self) -> None:
        """Handle the end of the connection to the broker: the kernel closes it when the process is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        session = Watched(self._received).session
        if self._farewell:
            self._watchers.check_farewell(process, self._last_id, session)
        elif session is not None:
            self._watchers.close_later(process, session)


class SessionWatchers:
    """The watchers of all brokers of one world."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self.are_used = rng.random() >= UNWATCHED_SEEDS
        self.closed = 0
        """Sessions that were closed from outside, by watchers and by restarted brokers."""

    def close_later(self, process: Process, session: Session) -> None:
        fate = self._rng.random()
        if fate < LOST:
            self._world.trace(f"the session watcher of {process} is lost with it")
            return
        delay_s = (LATE_S if fate < LOST + LATE else SOON_S) * self._rng.random()
        self._later(delay_s, process, session, self._world.loop.time() + delay_s + LONGEST_S)

    def check_farewell(self, process: Process, last_id: int, to_close: Session | None) -> None:
        if to_close is not None:
            self._world.ledger.violation(f"the session watcher of {process} closes a session after a farewell")
        if last_id in self._world.zk.sessions:
            self._world.ledger.violation(f"{process} has sent a farewell, and its session is open")

    def _later(self, delay_s: float, process: Process, session: Session, end_s: float) -> None:
        world = self._world

        def attempt() -> None:
            if world.zk.reachable(process):
                world.trace(f"the session watcher of {process} closes the session {session.name}")
                self._close(session)
            elif world.loop.time() < end_s:
                self._later(ATTEMPT_EVERY_S, process, session, end_s)

        world.loop.call_later(delay_s, attempt, context=world.loop.nobodys)

    def close_session(self, session: Session, _limit_s: float, _wrap: Wrap | None) -> bool:
        """Close the session of the last process, in the one that has been started after it. Raises SessionNotClosed."""
        process = owner()
        assert process is not None
        if not self._world.zk.reachable(process):
            raise SessionNotClosed("the link is cut")
        return self._close(session)

    def _close(self, session: Session) -> bool:
        found = self._world.zk.sessions.get(session.session_id)
        if found is None:
            return False
        for machine in self._world.machines.values():
            node = machine.running
            if node is not None and node.store.client.session is found:
                self._world.ledger.violation(
                    f"the session of the living broker {node.broker_id} is closed from outside"
                )
        self.closed += 1
        self._world.zk.end(found)
        return True
