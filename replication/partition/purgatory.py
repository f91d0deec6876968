"""Delayed operations of a partition: acknowledgements that await the high watermark, and watchers for long polls."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

from gregor.protocol.errors import ErrorCode

Watcher = Callable[[], None]
Committed = Callable[[ErrorCode], None]

_log = logging.getLogger(__name__)


class DelayedOperations:
    """Callbacks of one partition. Without any, `active` is false, and an append pays for one test.

    A callback may do anything, appending to the same partition included. Therefore callbacks never nest: the round
    that is already running delivers the effects of a callback, before the outermost `run` returns, and
    acknowledgements stay in offset order.
    """

    __slots__ = ("_again", "_commits", "_partition", "_running", "_sequence", "_topic", "_watchers", "active")

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self.active = False
        self._watchers: dict[int, Watcher] = {}
        # Heap of (offset, arrival, callback); arrival breaks ties, so callbacks are never compared.
        self._commits: list[tuple[int, int, Committed]] = []
        self._sequence = 0
        self._running = False
        self._again = False

    def __len__(self) -> int:
        """Return the number of watchers and of acknowledgements that are not due yet."""
        return len(self._watchers) + len(self._commits)

    @property
    def commits_count(self) -> int:
        """The number of acknowledgements that are not due yet."""
        return len(self._commits)

    @property
    def watchers_count(self) -> int:
        return len(self._watchers)

    @property
    def running(self) -> bool:
        return self._running

    def watch(self, callback: Watcher) -> int:
        """Call `callback` in each round, until `unwatch` with the handle that this returns."""
        self._sequence += 1
        self._watchers[self._sequence] = callback
        self.active = True
        return self._sequence

    def unwatch(self, handle: int) -> None:
        """Forget a watcher; it is not called again, not even by a round in progress. Unknown handles are ignored."""
        self._watchers.pop(handle, None)
        self._update_active()

    def await_offset(self, offset: int, callback: Committed) -> None:
        """Queue an acknowledgement. One that a callback queues is checked before the running round ends."""
        self._sequence += 1
        heapq.heappush(self._commits, (offset, self._sequence, callback))
        self.active = True

    def notify_watchers(self, verdict: Callable[[int], ErrorCode | None]) -> None:
        """Call every watcher. Acknowledgements are checked only if a watcher runs another round."""
        if self._running or not self._watchers:
            self._again = True
            return
        self._running = True
        self._again = False
        try:
            self._call_watchers()
        finally:
            self._running = False
        if self._again:
            self.run(verdict)

    def run(self, verdict: Callable[[int], ErrorCode | None]) -> None:
        """Answer each acknowledgement for which `verdict(offset)` is not None, then call every watcher."""
        if self._running:
            self._again = True
            return
        self._running = True
        try:
            while True:
                self._again = False
                self._answer_commits(verdict)
                self._call_watchers()
                # Acknowledgements that the watchers queued may be due already.
                self._answer_commits(verdict)
                if not self._again:
                    break
        finally:
            self._running = False
            self._update_active()

    def _answer_commits(self, verdict: Callable[[int], ErrorCode | None]) -> None:
        # Each gets a verdict of its own: a callback may have changed the partition.
        while self._commits:
            error = verdict(self._commits[0][0])
            if error is None:
                return
            offset, _, callback = heapq.heappop(self._commits)
            try:
                callback(error)
            except Exception as defect:
                _log.exception(
                    "%s-%d: a request that waited for the commit of the records below offset %d (outcome: %s) may get"
                    " no response, because of a defect: %r. The partition's other requests are answered; the client"
                    " sends it again after its timeout",
                    self._topic, self._partition, offset, error.name, defect,
                )  # fmt: skip

    def _call_watchers(self) -> None:
        for handle in tuple(self._watchers):
            watcher = self._watchers.get(handle)
            if watcher is None:
                continue
            try:
                watcher()
            except Exception as defect:
                _log.exception(
                    "%s-%d: a fetch or another request that waits for a change of the partition was not notified of"
                    " one, because of a defect: %r. It is notified of the next change, or answered after its timeout",
                    self._topic, self._partition, defect,
                )  # fmt: skip

    def _update_active(self) -> None:
        self.active = bool(self._watchers or self._commits)
