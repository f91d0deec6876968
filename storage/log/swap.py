"""Putting a compacted segment in the place of those it was made from.

    <base>.log.cleaned, ...     written and synced by the cleaner
    <base>.log.swap, ...        begin_swap: from here on, and once `sync` has run, a crash completes the swap
    *.log.deleted               finish_swap: the old segments, whose readers go on reading
    <base>.log                  finish_swap: the new one

A crash before the second step leaves the old segments, one after it the new one (segment.leftovers); never a mixture.
Between begin and finish a thread syncs the folder; whatever happens to the log meanwhile makes finish_swap refuse.
(Kafka's LocalLog.replaceSegments.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gregor.storage.log.compaction import DirtyRange, dirty_range
from gregor.storage.log.state import LogState
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
    from gregor.storage.fs.files import Files

_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class LogChanged(Exception):
    """The segments that were compacted are no longer those of the log: it was truncated, or lost some to retention."""


def unlink_unfinished(files: Files, directory: str, paths: Iterable[str] = ()) -> None:
    """Removes the .cleaned files of a worker that was stopped, and `paths`. On any thread; raises OSError."""
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
        """Old segments may have gone already: what is left of the swap must stay, for a start to complete it."""

    def sync(self) -> None:
        """Makes the .swap names durable. On any thread; raises OSError."""
        self._files.sync_directory(self.directory)


class SegmentSwap(LogState):
    """The part of Log that compaction works through."""

    __slots__ = ()

    @property
    def generation(self) -> int:
        """Grows when content that was in the log is taken back (truncation)."""
        return self._generation

    def dirty_range(self, now_ms: int, stable_offset: int | None = None) -> DirtyRange:
        """How far the log is compacted and how far it can be. Raises KafkaError KAFKA_STORAGE_ERROR."""
        config = self._config
        try:
            return dirty_range(
                self._segments,
                cleaned_offset=self.cleaned_offset,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                stable_offset=self.high_watermark if stable_offset is None else stable_offset,
                min_lag_ms=config.min_compaction_lag_ms,
                max_lag_ms=config.max_compaction_lag_ms,
                now_ms=now_ms,
            )
        except OSError as error:
            self._fail(error, "cannot tell the age of a segment")

    def begin_swap(self, base_offset: int, size_bytes: int, sources: Sequence[Segment], generation: int) -> SwapPlan:
        """The .cleaned files of a segment, of this size, are to replace `sources`: they get .swap names. `generation`
        is that of the log when it was read. Raises LogChanged, KafkaError; then the .cleaned files are left."""
        self._place_of(sources, generation)
        stem = file_stem(self.directory, base_offset)
        files = self._files
        suffixes = [suffix for suffix in _SUFFIXES if files.exists(stem + suffix + CLEANED_SUFFIX)]
        plan = SwapPlan(files, self.directory, base_offset, size_bytes, sources, suffixes, generation)
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
                self._take_offline(second)  # the next start completes the swap: nothing may change until then
            self._fail(error, "cannot rename a compacted segment")
        self._swap = plan
        return plan

    def finish_swap(self, plan: SwapPlan) -> list[str]:
        """Returns the paths of what was replaced, to be unlinked after file.delete.delay.ms. Raises LogChanged: the
        .swap files must go then (`discard_swap`), and KafkaError: the log is offline."""
        place = self._place_of(plan.sources, plan.generation)
        stem = file_stem(self.directory, plan.base_offset)
        paths: list[str] = []
        self._producers.recall()  # what follows removes batches
        plan.is_certain = True
        self._swap = None
        try:
            for segment in plan.sources:
                paths += segment.mark_deleted()
                if segment.base_offset != plan.base_offset:
                    paths += self._producers.mark_snapshot_deleted(segment.base_offset)
            for suffix in plan.suffixes:
                self._files.rename(stem + suffix + SWAP_SUFFIX, stem + suffix)
        except OSError as error:
            # Half of it is done; a start finds the .swap files and does the rest.
            self._take_offline(error)
            self._fail(error, "cannot replace compacted segments")
        new = Segment.open(self._files, self.directory, plan.base_offset, size_bytes=plan.size_bytes)
        self._segments[place] = [new]
        self._bases[place] = [plan.base_offset]
        self._directory_changed = True
        return paths

    def discard_swap(self, plan: SwapPlan) -> list[str]:
        """Takes back `begin_swap`; returns what to unlink. No error when the folder is gone. Nothing happens once
        `finish_swap` has begun to replace segments."""
        stem = file_stem(self.directory, plan.base_offset)
        paths: list[str] = []
        if plan.is_certain:
            return paths
        self._swap = None
        # The .log file last: without it a start would put indexes of its in the place of those of the old segment.
        for suffix in reversed(plan.suffixes):
            path = stem + suffix + SWAP_SUFFIX
            try:
                self._files.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            except OSError:
                try:
                    self._files.unlink(path)  # a full disk may have no room for a longer name
                except OSError as error:
                    self._take_offline(error)  # as above
                    self._fail(error, "cannot take back a compaction")
                continue
            paths.append(path + DELETED_SUFFIX)
        return paths

    def _forget_swap(self) -> None:
        """Before a truncation: a start after a crash would put the compacted segment in, with what is truncated now.
        Raises OSError."""
        plan, self._swap = self._swap, None
        if plan is not None and not plan.is_certain:
            stem = file_stem(self.directory, plan.base_offset)
            for suffix in reversed(plan.suffixes):  # the .log file last, as above
                self._files.unlink(stem + suffix + SWAP_SUFFIX)
            self._files.sync_directory(self.directory)

    def _place_of(self, sources: Sequence[Segment], generation: int) -> slice:
        first = self._segment_index(sources[0].base_offset)
        place = slice(first, first + len(sources))
        found = self._segments[place]
        unchanged = len(found) == len(sources) and all(one is other for one, other in zip(found, sources, strict=True))
        if generation != self._generation or not unchanged or found[-1] is self._active or self.offline:
            raise LogChanged(f"{self.topic}-{self.partition} changed while it was compacted")
        return place
