"""The timers of a shard over an event loop."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

from gregor.coordinator.ports import TimedOperation

_log = logging.getLogger(__name__)

MAX_AT_ONCE = 8
"""The number of operations in one turn of the loop that need not wait: each lasts up to 0.1 ms."""


class TimerHandle(Protocol):
    """The handle that an event loop returns for a call that is due later."""

    def cancel(self) -> None: ...


class TimerLoop(Protocol):
    """The methods of an event loop that timers need."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle: ...

    def call_soon(self, callback: Callable[..., object]) -> object: ...


class LoopTimers:
    """The timers of one shard over an event loop; `ports.Timers` describes their behaviour.

    A timer whose deadline moved away stays armed for the old one and arms itself again when that comes, so pushing it
    out, the common case by far, is two assignments.

    Of the timers that are due in one turn of the loop, as those of all members of a group whose network failed,
    MAX_AT_ONCE fire at once and the others in later turns. Until then they run: they can be restarted and cancelled.
    """

    __slots__ = ("_at_once", "_due_entries", "_entries", "_fire", "_in_turns", "_is_firing", "_loop")

    def __init__(
        self,
        loop: TimerLoop,
        fire: Callable[[TimedOperation], None],
        in_turns: Callable[[Iterator[None]], None],
    ) -> None:
        """`in_turns` runs short steps, between which other work of the loop proceeds."""
        self._loop = loop
        self._fire = fire
        self._in_turns = in_turns
        self._entries: dict[Hashable, _TimerEntry] = {}
        self._at_once = 0
        self._due_entries: deque[tuple[Hashable, _TimerEntry]] = deque()
        self._is_firing = False

    def schedule(self, key: Hashable, delay_ms: int, operation: TimedOperation) -> None:
        """(Re)start the timer."""
        deadline = self._loop.time() + delay_ms / 1000
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _TimerEntry()
        elif entry.postpone(deadline):
            entry.operation = operation
            return
        else:
            entry.handle.cancel()
        entry.deadline = deadline
        entry.operation = operation
        self._arm(key, entry)

    def restart(self, key: Hashable, delay_ms: int) -> bool:
        """Move the deadline of a timer that runs away; its operation stays. False: it does not run, or its deadline
        would come nearer."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        deadline = self._loop.time() + delay_ms / 1000
        return entry.postpone(deadline)

    def cancel(self, key: Hashable) -> None:
        """Stop the timer if it runs."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.handle.cancel()

    def keys(self) -> set[Hashable]:
        """The keys of the timers that run."""
        return set(self._entries)

    def deadlines(self) -> dict[Hashable, float]:
        """The deadlines of the timers that run, in seconds on the loop's clock."""
        return {key: entry.deadline for key, entry in self._entries.items()}

    def cancel_all(self) -> None:
        """Stop all timers."""
        for key in list(self._entries):
            self.cancel(key)
        self._due_entries.clear()

    def _arm(self, key: Hashable, entry: _TimerEntry) -> None:
        entry.arm(self._loop.call_at(entry.deadline, self._due, key, entry))

    def _due(self, key: Hashable, entry: _TimerEntry) -> None:
        if self._entries.get(key) is not entry:
            return  # it was armed anew while it waited for its turn, and has fired
        if entry.deadline > entry.armed_for:
            self._arm(key, entry)
            return
        if not self._at_once:
            self._loop.call_soon(self._begin_turn)
        self._at_once += 1
        if self._at_once <= MAX_AT_ONCE and not self._due_entries:
            del self._entries[key]
            self._fire(entry.operation)
            return
        self._due_entries.append((key, entry))
        if not self._is_firing:
            self._is_firing = True
            self._in_turns(self._fire_due())

    def _begin_turn(self) -> None:
        self._at_once = 0

    def _fire_due(self) -> Iterator[None]:
        try:
            while self._due_entries:
                key, entry = self._due_entries.popleft()
                if self._entries.get(key) is not entry:
                    continue  # it has been cancelled
                if entry.deadline > entry.armed_for:
                    self._arm(key, entry)  # it has been restarted
                    continue
                del self._entries[key]
                try:
                    self._fire(entry.operation)
                except Exception:
                    _log.exception("The operation of the timer %r failed", key)
                yield
        finally:
            self._is_firing = False


class _TimerEntry:
    __slots__ = ("armed_for", "deadline", "handle", "operation")
    armed_for: float
    deadline: float
    handle: TimerHandle
    operation: TimedOperation

    def postpone(self, deadline: float) -> bool:
        """Move the deadline, and return True; False if it would come nearer than what it is armed for."""
        if self.armed_for > deadline:
            return False
        self.deadline = deadline
        return True

    def arm(self, handle: TimerHandle) -> None:
        """Note that this handle comes at the present deadline."""
        self.armed_for = self.deadline
        self.handle = handle
