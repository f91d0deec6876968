"""The timers of a shard over an event loop."""

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from gregor.coordinator.ports import TimedOperation


class TimerHandle(Protocol):
    """The handle that an event loop returns for a call that is due later."""

    def cancel(self) -> None: ...


class TimerLoop(Protocol):
    """The methods of an event loop that timers need."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle: ...


class LoopTimers:
    """The timers of one shard over an event loop; `ports.Timers` describes their behaviour.

    A timer whose deadline moved away stays armed for the old one and arms itself again when that comes, so pushing it
    out, the common case by far, is two assignments.
    """

    __slots__ = ("_entries", "_fire", "_loop")

    def __init__(self, loop: TimerLoop, fire: Callable[[TimedOperation], None]) -> None:
        self._loop = loop
        self._fire = fire
        self._entries: dict[Hashable, _TimerEntry] = {}

    def schedule(self, key: Hashable, delay_ms: int, operation: TimedOperation) -> None:
        """(Re)start the timer."""
        deadline = self._loop.time() + delay_ms / 1000
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _TimerEntry()
        elif entry.armed_for <= deadline:
            entry.deadline = deadline
            entry.operation = operation
            return
        else:
            entry.handle.cancel()
        entry.deadline = deadline
        entry.operation = operation
        self._arm(key, entry)

    def cancel(self, key: Hashable) -> None:
        """Stop the timer if it runs."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.handle.cancel()

    def keys(self) -> set[Hashable]:
        """The keys of the timers that run."""
        return set(self._entries)

    def cancel_all(self) -> None:
        """Stop all timers."""
        for key in list(self._entries):
            self.cancel(key)

    def _arm(self, key: Hashable, entry: "_TimerEntry") -> None:
        entry.armed_for = entry.deadline
        entry.handle = self._loop.call_at(entry.deadline, self._due, key, entry)

    def _due(self, key: Hashable, entry: "_TimerEntry") -> None:
        if entry.deadline > entry.armed_for:
            self._arm(key, entry)
        else:
            del self._entries[key]
            self._fire(entry.operation)


class _TimerEntry:
    __slots__ = ("armed_for", "deadline", "handle", "operation")
    armed_for: float
    deadline: float
    handle: TimerHandle
    operation: TimedOperation
