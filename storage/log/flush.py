"""Making a log durable without stalling the event loop: plan on the loop, fsync on a thread, note it on the loop.

    plan = log.plan_flush()             # loop: which files, up to which offset
    if plan is not None:
        await in_a_thread(plan.run)     # any thread: nothing but fsyncs
        log.flushed(plan)               # loop: the recovery point moves, or the failure is raised

Every plan that was made must come back through `flushed`, whatever became of its run: it holds descriptors.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.storage.fs.files import File, Files
    from gregor.storage.segment.segment import Segment


class FlushPlan:
    """One flush. `offset` is the recovery point it leads to."""

    __slots__ = (
        "_files",
        "_held",
        "directory",
        "done",
        "error",
        "generation",
        "offset",
        "paths",
        "planned_ms",
        "rewritten",
    )

    def __init__(
        self,
        files: Files,
        held: list[File],
        paths: list[str],
        directory: str | None,
        offset: int,
        generation: int,
        planned_ms: int,
        rewritten: Sequence[tuple[Segment, int]] = (),
    ) -> None:
        """Opens what it holds. Raises OSError; then it holds nothing. `rewritten`: segments (their files among the held
        ones), and where in them a batch begins from which on an earlier sync has failed."""
        self._files = files
        self.rewritten = rewritten
        self._held: list[File] = []
        try:
            for file in held:
                file.hold()
                self._held.append(file)
        except OSError:
            self.release()
            raise
        self.paths = paths
        """Small files that were replaced as a whole since the last flush. One that is gone by now is passed over, and
        so is the directory: the partition was deleted meanwhile."""
        self.directory = directory
        """Named when files were created, renamed or deleted in it."""
        self.offset = offset
        self.generation = generation
        """Of the log's content: a truncation in between makes the plan worth nothing."""
        self.planned_ms = planned_ms
        self.done = False
        self.error: OSError | None = None

    def run(self) -> None:
        """Does the fsyncs, on any thread. Keeps an error for `Log.flushed` and raises none."""
        try:
            for segment, position in self.rewritten:
                _rewrite(segment, position)
            for file in self._held:
                file.sync()
            for path in self.paths:
                _pass_over_missing(lambda path=path: self._files.sync_file(path))  # type: ignore[misc]
            directory = self.directory
            if directory is not None:
                _pass_over_missing(lambda: self._files.sync_directory(directory))
            self.done = True
        except OSError as error:
            self.error = error

    def release(self) -> None:
        """Called by `Log.flushed`."""
        for file in self._held:
            file.release()
        self._held = []


def _rewrite(segment: Segment, position: int) -> None:
    """What the page cache holds may be the only copy, or may have been dropped as if it were on the disk."""
    start = position
    for batch in segment.scan(start):
        position = batch[0] + batch[1]
    if position != segment.size_bytes:
        raise OSError(errno.EIO, "what was written before a sync failed is lost", segment.log.path)
    try:
        segment.log.rewrite(start, position)
        for index in (segment.offset_index, segment.time_index):
            index.file.rewrite(0, index.written_bytes)
    except FileNotFoundError:  # deleted meanwhile
        return


def _pass_over_missing(action: Callable[[], None]) -> None:
    try:
        action()
    except FileNotFoundError:
        return
