"""A partition of an internal topic that this broker coordinates: its shard, its offsets, and what waits there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from gregor.coordinator.ports import Shard
from gregor.coordinator.result import Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode

S = TypeVar("S", bound=Shard)


class _Load(Protocol):
    """The load of the shard from the log."""

    def cancel(self) -> Any: ...


class _Context(Protocol):
    """The surroundings of the shard."""

    @property
    def leader_epoch(self) -> int: ...
    def close(self) -> None: ...


class OwnedPartition(Generic[S]):
    """A partition that this broker coordinates."""

    __slots__ = (
        "after_load",
        "busy",
        "commit_timed_out",
        "committed_offset",
        "context",
        "draining",
        "end_offset",
        "error",
        "load",
        "queued",
        "refused_with",
        "shard",
        "waits",
    )
    shard: S
    context: _Context

    def __init__(self) -> None:
        # Why requests are refused; NONE once loaded.
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self.load: _Load | None = None
        self.after_load: list[Callable[[S, int], Result]] = []
        # An operation runs, is appended or is replayed: those that this causes must come after it.
        self.busy = False
        self.draining = False
        self.queued: list[Callable[[], None]] = []
        # All records below `end_offset` have been replayed, and those below `committed_offset` are known as committed.
        self.end_offset = 0
        self.committed_offset = 0
        # A wait for a commit has timed out, and nothing was committed since.
        self.commit_timed_out = False
        # Waits for commits, in the order in which they began, and whether they are those of reads.
        self.waits: dict[Deferred[None], bool] = {}
        # The error of the last append, NONE if it succeeded.
        self.refused_with = ErrorCode.NONE

    def load_failed(self) -> None:
        """Refuse requests: the log could not be read."""
        self.error = ErrorCode.NOT_COORDINATOR

    def begin_service(self) -> list[Callable[[S, int], Result]]:
        """Answer requests from now on; returns the operations that have waited for this."""
        self.error = ErrorCode.NONE
        operations, self.after_load = self.after_load, []
        return operations

    def begin_operation(self) -> None:
        """Queue other operations from now on."""
        self.busy = True

    def end_operation(self) -> None:
        """Run the operations that were queued meanwhile."""
        self.busy = False
        if self.queued:
            self.run_queued()

    def run_queued(self) -> None:
        """Run the queued operations, and those that they queue. A call in one of them does nothing."""
        if self.draining:
            return
        self.draining = True
        try:
            while self.queued:
                self.queued.pop(0)()
        finally:
            self.draining = False

    def replayed(self, end_offset: int) -> None:
        """Note that all records below this offset are appended and replayed."""
        self.end_offset = end_offset

    def accepted(self) -> None:
        """Note that an append has succeeded."""
        self.refused_with = ErrorCode.NONE

    def refused(self, error: ErrorCode) -> bool:
        """Note that an append has failed, and return whether the one before it had failed in the same way."""
        again = error == self.refused_with
        self.refused_with = error
        return again

    def time_out_reads(self) -> None:
        """Answer reads without a wait for the commit, until there is one again."""
        self.commit_timed_out = True
        for wait in [wait for wait, reads in self.waits.items() if reads]:
            wait.complete(None)

    def committed(self, end_offset: int) -> None:
        """Note that all records below this offset are committed."""
        self.committed_offset = max(self.committed_offset, end_offset)
        self.commit_timed_out = False
