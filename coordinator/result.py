"""What an operation of a coordinator gives back.

An operation never changes hard state: it says which records would, and what to answer once they are committed. The
runtime appends the records, replays them (that is the change) and lets the answers go at commit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gregor.protocol.errors import ErrorCode


@dataclass(slots=True, frozen=True)
class Record:
    """One change of hard state, as messages of the internal topic; `value` None is a tombstone."""

    key: Any
    value: Any


class Parked:
    """An answer that is owed: one operation parks it, a later one gives it.

    The first of `answer` and `fail` counts, what comes after is ignored; `then` may be called before or after.
    """

    __slots__ = ("_callback", "done", "error", "response")

    def __init__(self) -> None:
        self.done = False
        self.response: Any = None
        self.error = ErrorCode.NONE
        self._callback: Callable[[Parked], None] | None = None

    def answer(self, response: object) -> None:
        """Give the response."""
        if not self.done:
            self.response = response
            self._finish()

    def fail(self, error: ErrorCode) -> None:
        """Say that there will be no response but this error."""
        if not self.done:
            self.error = error
            self._finish()

    def then(self, callback: "Callable[[Parked], None]") -> None:
        """Call back when the answer is there, at once if it is. One callback only."""
        self._callback = callback
        if self.done:
            callback(self)

    def _finish(self) -> None:
        self.done = True
        if self._callback is not None:
            self._callback(self)


@dataclass(slots=True)
class Result:
    """The outcome of one operation.

    `response` is the answer, or the Parked that will hold it. `releases` are answers owed to others that may go once
    the records are committed. `on_failure` leads soft state back when the records could not be appended; hard state
    needs no way back, it did not change. `atomic` False lets the runtime spread the records over several batches.
    """

    response: Any = None
    records: list[Record] = field(default_factory=list)
    releases: list[tuple[Parked, Any]] = field(default_factory=list)
    on_failure: Callable[[ErrorCode], None] | None = None
    atomic: bool = True


_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """An error of the log as clients of a coordinator expect it (Kafka's CoordinatorOperationExceptionHelper)."""
    return _APPEND_ERRORS.get(error, error)
