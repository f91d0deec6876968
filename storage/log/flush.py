"""Flushing a log without blocking the event loop: plan on the loop, fsync on a thread, note it on the loop.

    plan = log.flusher.plan()           # loop: which files, up to which offset
    if plan is not None:
        await in_a_thread(plan.run)     # any thread: nothing but fsyncs
        log.flusher.flushed(plan)       # loop: the recovery point moves, or the failure is raised

Every plan must be passed to `flushed`, whether its run has succeeded or not: it holds descriptors.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.fs.disk_errors import NOT_OPENED, is_full
from gregor.storage.log.state import NEVER

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.protocol.topic_partition import TopicPartition
    from gregor.storage.fs.files import File, Files
    from gregor.storage.log.epochs import LeaderEpochs
    from gregor.storage.log.state import LogHealth, LogOffsets, Segments
    from gregor.storage.producers.state import ProducerStates
    from gregor.storage.segment.segment import Segment

MAX_SEGMENTS_PER_FLUSH = 64
"""A plan holds the descriptors of all files that it syncs."""


class FlushPlan:
    """One flush. `offset` is the recovery point it leads to."""

    __slots__ = (
        "_files",
        "_held",
        "active_base_offset",
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
        active_base_offset: int,
        generation: int,
        planned_ms: int,
        rewritten: Sequence[tuple[Segment, int]] = (),
    ) -> None:
        """Open the files that it holds. Raises OSError; then it holds nothing. `rewritten`: segments (their files are
        among the held ones), and the position of the batch from which on an earlier sync has failed."""
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
        """Small files that were replaced as a whole since the last flush. One that no longer exists is skipped, and so
        is the directory: the partition was deleted meanwhile."""
        self.directory = directory
        """Named when files were created, renamed or deleted in it."""
        self.offset = offset
        self.active_base_offset = active_base_offset
        """Of the active segment when the flush was planned."""
        self.generation = generation
        """Of the content of the log: a truncation in between makes the plan void."""
        self.planned_ms = planned_ms
        self.done = False
        self.error: OSError | None = None

    def run(self) -> None:
        """Sync the files, on any thread. Keeps an error for `Flusher.flushed` and raises none."""
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

    def was_run(self, *, done: bool, error: OSError | None) -> None:
        """Note that a sync of the whole file system has replaced the run: whether it was `done`, or its error."""
        self.done, self.error = done, error

    def release(self) -> None:
        """Called by `Flusher.flushed`."""
        for file in self._held:
            file.release()
        self._held = []


def _rewrite(segment: Segment, position: int) -> None:
    """Write the end of a segment again: the page cache may hold the only copy, or may have dropped it as if it were on
    the disk."""
    start = position
    for batch in segment.scan(start):
        position = batch.position + batch.size_bytes
    if position != segment.size_bytes:
        raise OSError(errno.EIO, "what was written before a sync failed is lost", segment.log.path)
    try:
        segment.log.rewrite(start, position)
        for index in (segment.offset_index, segment.time_index):
            index.file.rewrite(0, index.written_bytes)
        if segment.transaction_index is not None:
            transactions = segment.transaction_index.file
            transactions.rewrite(0, transactions.size_bytes())
    except FileNotFoundError:  # deleted meanwhile
        return


def _pass_over_missing(action: Callable[[], None]) -> None:
    try:
        action()
    except FileNotFoundError:
        return


class Flusher:
    """Plans the flushes of one log and moves its recovery point."""

    __slots__ = (
        "_config",
        "_epochs",
        "_health",
        "_key",
        "_marked",
        "_offsets",
        "_producers",
        "_rolled_offset",
        "_segments",
        "flushes_soon",
        "is_truncated",
        "last_flush_ms",
    )

    def __init__(
        self,
        offsets: LogOffsets,
        segments: Segments,
        health: LogHealth,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        config: LogConfig,
        now_ms: int,
    ) -> None:
        self._offsets = offsets
        self._segments = segments
        self._health = health
        self._producers = producers
        self._epochs = epochs
        self._rolled_offset = -1
        """Base offset of the active segment since a roll that no flush has followed, else -1."""
        self.last_flush_ms = now_ms
        self._marked: set[TopicPartition] | None = None
        self._key: TopicPartition | None = None
        self.is_truncated = False
        """Truncated, and not synced since: until then a power cut may restore the removed batches, in front of those
        that were written since, or in place of them."""
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self._config = config
        self._set_flushes_soon()

    def mark_in(self, marked: set[TopicPartition], key: TopicPartition) -> None:
        """Add `key` to `marked` now and later, whenever the log begins to need a check (`needs_check`)."""
        self._marked, self._key = marked, key
        if self.needs_check:
            self.mark()

    def mark(self) -> None:
        """Have the next check of flushes visit this log."""
        if self._marked is not None and self._key is not None:
            self._marked.add(self._key)

    @property
    def needs_check(self) -> bool:
        """A flush may be due, or a checkpoint has to withdraw the recovery point."""
        return self.flushes_soon or self._offsets.recovery_point_fell

    def _set_flushes_soon(self) -> None:
        config = self._config
        self.flushes_soon = (
            config.flush_messages < NEVER
            or config.flush_ms < NEVER
            or self._rolled_offset > self._offsets.recovery_point
            or self._health.distrusted
            or self.is_truncated
        )
        """False if only the log end offset can make the log due for a flush. That holds for most logs most of the time,
        so that thousands of them need no check each second."""
        if self.flushes_soon:
            self.mark()

    def rolled(self, base_offset: int) -> None:
        """Note that a new segment begins at this offset."""
        self._rolled_offset = base_offset
        self._offsets.segment_began(base_offset)
        self.flushes_soon = True
        self.mark()

    def truncated(self) -> None:
        self.is_truncated = True
        self._rolled_offset = min(self._rolled_offset, self._segments.active.base_offset)
        self._set_flushes_soon()

    def is_due(self, now_ms: int) -> bool:
        """Return whether flush.messages, flush.ms, or a segment that was rolled since the last flush requires one."""
        offsets = self._offsets
        if self._rolled_offset > offsets.recovery_point or self._health.distrusted or self.is_truncated:
            return True
        unflushed = offsets.log_end_offset - offsets.recovery_point
        config = self._config
        return unflushed > 0 and (unflushed >= config.flush_messages or now_ms - self.last_flush_ms >= config.flush_ms)

    def plan(self, now_ms: int = 0, *, rolled_only: bool = False, hold: bool = True) -> FlushPlan | None:
        """Plan the syncs that move the recovery point to the log end offset; None if none is needed.

        With `rolled_only` the plan ends with the active segment, which costs less; it never has more than
        MAX_SEGMENTS_PER_FLUSH segments. Each plan must be passed to `flushed`. Without `hold` the plan is for all
        segments, holds no files and must not be run: the caller syncs the whole file system. A log that is `distrusted`
        needs its own plan.
        """
        offsets, segments, health = self._offsets, self._segments, self._health
        if health.distrusted:
            if not hold:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{health.name} has to be written again")
            rolled_only = False
        target = segments.active.base_offset if rolled_only else offsets.log_end_offset
        first = segments.index_of(offsets.recovery_point)
        if hold and not self.is_truncated and len(segments.items) - first > MAX_SEGMENTS_PER_FLUSH:
            target = segments.bases[first + MAX_SEGMENTS_PER_FLUSH]
        changed = (
            segments.names_changed or self._epochs.dirty or self._producers.unsynced_snapshots or self.is_truncated
        )
        if target <= offsets.recovery_point and not changed and not health.distrusted:
            return None
        paths = [*self._producers.unsynced_snapshots]
        if self._epochs.dirty:
            paths.append(self._epochs.path)
        try:
            self._epochs.write_unwritten()
            held, rewritten = self._changed_files(segments.items[first:], target, rolled_only, hold)
            plan = FlushPlan(
                segments.files,
                held,
                paths,
                segments.directory if segments.names_changed or paths else None,
                max(target, offsets.recovery_point),
                segments.active.base_offset,
                segments.generation,
                now_ms,
                rewritten,
            )
        except OSError as error:
            health.fail(error, "cannot open files to sync them")
        segments.sync_planned()
        self._epochs.sync_planned()
        self._producers.sync_planned()
        return plan

    def _changed_files(
        self, segments: list[Segment], target: int, rolled_only: bool, hold: bool
    ) -> tuple[list[File], list[tuple[Segment, int]]]:
        """Write the indexes; returns the files to hold and the segments to write again. Raises OSError."""
        names_changed, distrusted = self._segments.names_changed, self._health.distrusted
        held: list[File] = []
        rewritten: list[tuple[Segment, int]] = []
        for segment in segments:
            # For an empty one the sync of the folder is enough, unless it was truncated.
            if (
                segment.base_offset < target
                or (names_changed and not rolled_only and segment.size_bytes)
                or (self.is_truncated and segment is self._segments.active)
            ):
                segment.write_indexes()
                if hold:
                    held += segment.synced_files()
                if distrusted:
                    found = segment.locate(max(self._offsets.recovery_point, segment.base_offset))
                    rewritten.append((segment, segment.size_bytes if found is None else found[0]))
        return held, rewritten

    def flushed(self, plan: FlushPlan) -> None:
        """Release a plan after its run, and move the recovery point. If a sync failed, the content of the disk is
        unknown: KAFKA_STORAGE_ERROR is raised, and the log goes offline. Where there was no room the log is only
        `distrusted`, until a later plan has written everything again; where there were no descriptors a later plan
        syncs everything."""
        offsets, segments, health = self._offsets, self._segments, self._health
        plan.release()
        not_opened = plan.error is not None and plan.error.errno in NOT_OPENED
        if plan.error is not None and not not_opened and not is_full(plan.error):
            health.take_offline(plan.error)
            health.fail(plan.error, "cannot sync")
        if not plan.done or plan.generation != segments.generation:
            # Not run, or truncated meanwhile: its files must be synced again.
            segments.sync_failed()
            self._epochs.distrust_file()
            self._producers.sync_failed([path for path in plan.paths if path != self._epochs.path])
            self._truncate_rewritten(plan)
            if plan.error is not None:
                if not not_opened:
                    health.distrust()
                self._set_flushes_soon()
                health.fail(plan.error, "cannot sync")
            return
        self.last_flush_ms = max(self.last_flush_ms, plan.planned_ms)
        self.is_truncated = False
        offsets.synced_below(plan.offset - self._was_rolled_at_end(plan))
        if offsets.recovery_point >= offsets.log_end_offset:
            health.rewritten()
        self._set_flushes_soon()

    def _was_rolled_at_end(self, plan: FlushPlan) -> bool:
        """Return whether a segment that begins where the plan ended was rolled during its run. Then the time index of
        the segment before it has got its last entry since, which a later flush must sync."""
        segments = self._segments
        rolled = segments.active.base_offset != plan.active_base_offset
        return rolled and plan.active_base_offset < plan.offset and plan.offset in segments.bases

    def _truncate_rewritten(self, plan: FlushPlan) -> None:
        """Truncate the rewritten segments again: the run may have written behind the end that a truncation has set
        meanwhile. Nothing was appended since."""
        try:
            for segment, _ in plan.rewritten:
                if any(segment is one for one in self._segments.items):
                    segment.log.truncate(segment.size_bytes)
        except OSError as error:
            self._health.take_offline(error)
            self._health.fail(error, "cannot truncate a segment")

    def flush(self, now_ms: int = 0) -> None:
        """Plan, run and note a flush in this call. For tools, and for topics with flush.messages=1 on a thread."""
        self._run(self.plan(now_ms))

    def close_cleanly(self) -> None:
        """Write and sync the files that a start without recovery needs, in this call."""
        self._run(self.plan_close())

    def plan_close(self, now_ms: int = 0, *, hold: bool = True) -> FlushPlan | None:
        """Write the files that a start without recovery needs: a producer snapshot, the last time index entry. The plan
        must be run and passed to `flushed`, and then the log closed. `hold` as in `plan`."""
        try:
            # A log that never held a batch needs no snapshot.
            if self._offsets.log_end_offset > self._segments.bases[0] or self._producers.entries:
                self._producers.take_snapshot(self._offsets.log_end_offset)
            self._segments.active.become_inactive()
        except OSError as error:
            self._health.fail(error, "cannot close")
        return self.plan(now_ms, hold=hold)

    def _run(self, plan: FlushPlan | None) -> None:
        if plan is not None:
            plan.run()
            self.flushed(plan)
