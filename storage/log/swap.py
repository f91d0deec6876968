"""Replacing segments by the one that compaction has made from them.

    <base>.log.cleaned, ...     written and synced by the cleaner
    <base>.log.swap, ...        SegmentSwap.begin: from here on, and once `sync` has run, a crash completes the swap
    *.log.deleted               SegmentSwap.finish: the old segments, which their readers can still read
    <base>.log                  SegmentSwap.finish: the new one

A crash before the second step leaves the old segments, one after it the new one (segment.leftovers); never a mixture.
Between begin and finish a thread syncs the folder; any change of the segments meanwhile makes `finish` refuse.
(Kafka's LocalLog.replaceSegments.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gregor.storage.log.compaction import DirtyRange, dirty_range
from gregor.storage.segment.leftovers import CLEANED_SUFFIX, SWAP_SUFFIX
from gregor.storage.segment.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_stem,
)

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.storage.fs.files import Files
    from gregor.storage.log.state import LogHealth, LogOffsets, Segments
    from gregor.storage.producers.state import ProducerStates

_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class LogChanged(Exception):
    """The segments that were compacted are no longer those of the log: it was truncated, or retention removed some."""


def unlink_unfinished(files: Files, directory: str, paths: Iterable[str] = ()) -> None:
    """Remove the .cleaned files of a worker that was stopped, and `paths`. On any thread; raises OSError."""
    for path in paths:
        files.unlink(path)
    for entry in files.list_directory(directory):
        if entry.name.endswith(CLEANED_SUFFIX):
            files.unlink(f"{directory}/{entry.name}")


class SwapPlan:
    """A swap that has begun."""

    __slots__ = ("_files", "base_offset", "directory", "generation", "is_certain", "size_bytes", "sources", "suffixes")

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        size_bytes: int,
        sources: Sequence[Segment],
        suffixes: Sequence[str],
        generation: int,
    ) -> None:
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.sources = sources
        self.suffixes = suffixes
        self.generation = generation
        self.is_certain = False
        """Old segments may have been removed already: the .swap files must stay, so that a start completes the swap."""

    def begin_removal(self) -> None:
        """Note that the old segments are about to be removed."""
        self.is_certain = True

    def sync(self) -> None:
        """Make the .swap names durable. On any thread; raises OSError."""
        self._files.sync_directory(self.directory)


class SegmentSwap:
    """Replaces segments of one log by compacted ones; one swap is under way at a time."""

    __slots__ = ("_health", "_offsets", "_plan", "_producers", "_segments")

    def __init__(self, offsets: LogOffsets, segments: Segments, health: LogHealth, producers: ProducerStates) -> None:
        self._offsets = offsets
        self._segments = segments
        self._health = health
        self._producers = producers
        self._plan: SwapPlan | None = None
        """The compacted segment that has begun to replace others."""

    def dirty_range(self, config: LogConfig, now_ms: int, stable_offset: int, waits_for_disk: bool) -> DirtyRange:
        """Return how far the log is compacted and how far it can be. Raises KafkaError KAFKA_STORAGE_ERROR."""
        offsets = self._offsets
        try:
            return dirty_range(
                self._segments.items,
                cleaned_offset=offsets.cleaned_offset,
                log_start_offset=offsets.log_start_offset,
                log_end_offset=offsets.log_end_offset,
                stable_offset=stable_offset,
                min_lag_ms=config.min_compaction_lag_ms,
                max_lag_ms=config.max_compaction_lag_ms,
                now_ms=now_ms,
                waits_for_disk=waits_for_disk,
            )
        except OSError as error:
            self._health.fail(error, "cannot read the age of a segment")

    def begin(self, base_offset: int, size_bytes: int, sources: Sequence[Segment], generation: int) -> SwapPlan:
        """Begin to replace `sources` by the .cleaned files of a segment of this size, which get .swap names.
        `generation` is that of the log when it was read. Raises LogChanged, KafkaError; then the .cleaned files
        remain."""
        self._indexes_of(sources, generation)
        stem = file_stem(self._segments.directory, base_offset)
        files = self._segments.files
        suffixes = [suffix for suffix in _SUFFIXES if files.exists(stem + suffix + CLEANED_SUFFIX)]
        plan = SwapPlan(files, self._segments.directory, base_offset, size_bytes, sources, suffixes, generation)
        renamed: list[str] = []
        try:
            for suffix in suffixes:
                files.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix + SWAP_SUFFIX)
                renamed.append(suffix)
        except OSError as error:
            try:
                for suffix in reversed(renamed):
                    files.rename(stem + suffix + SWAP_SUFFIX, stem + suffix + CLEANED_SUFFIX)
            except OSError as second:
                self._health.take_offline(second)  # the next start completes the swap: nothing may change until then
            self._health.fail(error, "cannot rename a compacted segment")
        self._plan = plan
        return plan

    def finish(self, plan: SwapPlan) -> list[str]:
        """Complete the swap; returns the paths of the old files, to be unlinked after file.delete.delay.ms. Raises
        LogChanged: the .swap files must be removed then (`discard`), and KafkaError: the log is offline."""
        indexes = self._indexes_of(plan.sources, plan.generation)
        stem = file_stem(self._segments.directory, plan.base_offset)
        paths: list[str] = []
        self._producers.recall(self._segments.items)  # before batches are removed
        plan.begin_removal()
        self._plan = None
        try:
            for segment in plan.sources:
                paths += segment.mark_deleted()
                if segment.base_offset != plan.base_offset:
                    paths += self._producers.mark_snapshot_deleted(segment.base_offset)
            for suffix in plan.suffixes:
                self._segments.files.rename(stem + suffix + SWAP_SUFFIX, stem + suffix)
        except OSError as error:
            # The swap is half done; a start finds the .swap files and completes it.
            self._health.take_offline(error)
            self._health.fail(error, "cannot replace compacted segments")
        new = Segment.open(self._segments.files, self._segments.directory, plan.base_offset, size_bytes=plan.size_bytes)
        if TRANSACTION_INDEX_SUFFIX in plan.suffixes:
            new.adopt_transaction_index()
        self._segments.replace(indexes, new)
        return paths

    def discard(self, plan: SwapPlan) -> list[str]:
        """Undo `begin`; returns the paths to unlink. No error when the folder was removed. Has no effect once `finish`
        has begun to replace segments."""
        stem = file_stem(self._segments.directory, plan.base_offset)
        paths: list[str] = []
        if plan.is_certain:
            return paths
        self._plan = None
        # The .log file last: without it a start would replace the indexes of the old segment by the new ones.
        for suffix in reversed(plan.suffixes):
            path = stem + suffix + SWAP_SUFFIX
            try:
                self._segments.files.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            except OSError:
                try:
                    self._segments.files.unlink(path)  # a full disk may have no room for a longer name
                except OSError as error:
                    self._health.take_offline(error)  # as above
                    self._health.fail(error, "cannot undo a compaction")
                continue
            paths.append(path + DELETED_SUFFIX)
        return paths

    def forget(self) -> None:
        """Abandon the swap before a truncation: a start after a crash would complete it, and restore what is truncated
        now. Raises OSError."""
        plan, self._plan = self._plan, None
        if plan is not None and not plan.is_certain:
            stem = file_stem(self._segments.directory, plan.base_offset)
            for suffix in reversed(plan.suffixes):  # the .log file last, as above
                self._segments.files.unlink(stem + suffix + SWAP_SUFFIX)
            self._segments.files.sync_directory(self._segments.directory)

    def _indexes_of(self, sources: Sequence[Segment], generation: int) -> slice:
        first = self._segments.index_of(sources[0].base_offset)
        indexes = slice(first, first + len(sources))
        found = self._segments.items[indexes]
        unchanged = len(found) == len(sources) and all(one is other for one, other in zip(found, sources, strict=True))
        if (
            generation != self._segments.generation
            or not unchanged
            or found[-1] is self._segments.active
            or self._health.offline
        ):
            raise LogChanged(f"{self._health.name} changed while it was compacted")
        return indexes
