"""One partition's log: opening, truncation, retention, flushing. Appending, reading and searching are in
log_append, log_read and log_search.

Offsets, from left to right: log start offset <= high watermark <= log end offset, and the recovery point somewhere
below the log end offset. Methods raise KafkaError with KAFKA_STORAGE_ERROR when a file cannot be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.storage.fs.disk_errors import is_full
from gregor.storage.log.append import AppendInfo, LogAppends
from gregor.storage.log.epochs import LeaderEpochs
from gregor.storage.log.flush import FlushPlan
from gregor.storage.log.read import LogReads, LogSlice
from gregor.storage.log.retention import segments_to_delete
from gregor.storage.log.search import LogSearches
from gregor.storage.log.state import LogState
from gregor.storage.log.swap import SegmentSwap
from gregor.storage.producers.state import DEFAULT_EXPIRATION_MS, ProducerEntry, ProducerStates
from gregor.storage.segment.batches import HEADER, HEADER_BYTES
from gregor.storage.segment.segment import LOG_SUFFIX, Segment

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.storage.fs.files import File, Files

__all__ = ["AppendInfo", "FlushPlan", "Log", "LogSlice", "epochs_of_batches", "list_segments", "replay_producers"]


SEGMENTS_PER_FLUSH = 64
"""A plan holds the descriptors of all it is to sync."""


class Log(LogReads, LogSearches, LogAppends, SegmentSwap, LogState):
    """Not thread-safe: everything is called on one thread, except FlushPlan.run."""

    __slots__ = ()

    @classmethod
    def open(
        cls,
        directory: str,
        config: LogConfig,
        files: Files,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid = ZERO_UUID,
        now_ms: int,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        segments: list[Segment] | None = None,
        producers: ProducerStates | None = None,
        epochs: LeaderEpochs | None = None,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> Log:
        """The log in a folder, or a new one if the folder (which must exist) holds no segment.

        The folder must have been left clean, or recovered: all batches are whole, the indexes complete. Recovery may
        hand over what it has loaded already: `segments` in offset order; `producers` with the state up to the log end
        offset; `epochs`. Raises OldMessageFormat and KafkaError.
        """
        if segments is None:
            segments = list_segments(files, directory, now_ms)
        created = not segments
        if created:
            segments = [Segment.create(files, directory, log_start_offset, now_ms=now_ms)]
        active = segments[-1]
        log_end_offset = active.base_offset
        if not created:
            active.activate()
            log_end_offset, end = active.read_next_offset()
            if end != active.size_bytes:
                active.truncate_to(end, log_end_offset)
        log_start_offset = max(log_start_offset, segments[0].base_offset)
        log_end_offset = max(log_end_offset, log_start_offset)

        if epochs is None:
            epochs = LeaderEpochs.load(files, directory)
            if not epochs.intact:
                epochs.assign_many(epochs_of_batches(segments))
            epochs.truncate_from_end(log_end_offset, loading=True)
            epochs.truncate_from_start(log_start_offset)
        if producers is None:
            producers = ProducerStates(files, directory, producer_expiration_ms)
            producers.list_snapshots(entry.name for entry in files.list_directory(directory))
            producers.remove_stray_snapshots(segment.base_offset for segment in segments)
            # No snapshot at all: the log was closed by a Kafka that did not know of producers yet.
            if producers.snapshot_offsets:
                replay_producers(producers, segments, log_start_offset, log_end_offset, now_ms)
        log = cls(
            directory,
            config,
            files,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            segments=segments,
            producers=producers,
            epochs=epochs,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
            now_ms=now_ms,
        )
        log._directory_changed = created
        return log

    @property
    def generation(self) -> int:
        """Changes with every truncation: what was copied of the log before is no beginning of it any more."""
        return self._generation

    def names_changed(self) -> None:
        """Files were made or renamed in the log's folder: the next flush syncs that, too."""
        self._directory_changed = True

    # Leader epochs

    def latest_epoch(self) -> int | None:
        latest = self._epochs.latest
        return latest if latest >= 0 else None

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset): the largest epoch that is not above the one asked for, and where it ended; (-1, -1) if
        it cannot be told. (Kafka's LeaderEpochFileCache.endOffsetFor.)"""
        return self._epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        return self._epochs.epoch_for_offset(offset)

    def epoch_entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of all known epochs."""
        return self._epochs.entries()

    # Producers

    def producer_ids(self) -> dict[int, ProducerEntry]:
        """What is known of each producer, by producer id. To look at."""
        return self._producers.entries

    @property
    def producer_expiration_ms(self) -> int:
        return self._producers.expiration_ms

    def await_sequence(self, producer_id: int, epoch: int, sequence: int) -> None:
        """A producer's batch that begins with this sequence was refused, for a reason that passes: nothing that it sent
        behind that batch is taken first."""
        self._producers.await_sequence(producer_id, epoch, sequence)

    def begin_to_lead(self, since_ms: int | None) -> None:
        """What was refused before counts no more. `since_ms`: the present time if clients wrote to another broker until
        now, so that something of theirs may come later than what they sent behind it."""
        self._producers.begin_to_lead(since_ms, knows_all=self.log_start_offset == 0)

    def expire_producers(self, now_ms: int) -> None:
        self._producers.expire(now_ms)

    def forget_producers_after(self, expiration_ms: int) -> None:
        """Another producer.id.expiration.ms counts from now on."""
        self._producers.expiration_ms = expiration_ms

    # Truncation

    def truncate_to(self, offset: int, now_ms: int = 0) -> None:
        """Removes all batches that reach up to `offset` or beyond it; the log ends there then. A follower does that
        to what its leader does not have."""
        if offset < 0:
            raise ValueError(f"cannot truncate to {offset}")
        try:
            if offset >= self.log_end_offset:
                # Nothing to remove but an epoch that was begun here and got no batch.
                self._epochs.truncate_from_end(self.log_end_offset)
            elif offset < self._bases[0]:
                self.truncate_fully_and_start_at(offset, now_ms)
            else:
                self._truncate(offset, now_ms)
        except OSError as error:
            self._take_offline(error)
            self._fail(error, "cannot truncate")

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Removes everything; the log is empty and begins at `offset`."""
        try:
            self._forget_swap()
            self._unlink_segments(0)
            self._producers.clear()
            self._producers.delete_snapshots_above(-1)
            self._epochs.clear()
            segment = Segment.create(self._files, self.directory, offset, now_ms=now_ms)
        except OSError as error:
            self._take_offline(error)
            self._fail(error, "cannot truncate")
        segment.roll_jitter_ms = self._jitter_ms()
        self._add_active(segment)
        self.recovery_point_fell |= offset < self.recovery_point
        self.log_start_offset = self.log_end_offset = self.high_watermark = self.recovery_point = offset
        self._after_truncation()

    def begin_with(self, records: memoryview | bytes | bytearray, now_ms: int = 0) -> None:
        """Of an empty log: moves its begin back to that of the first of these batches, if the log was to begin in the
        middle of it. A leader whose log starts there, after DeleteRecords, sends the batch as a whole. (Kafka's
        Partition.appendRecordsToFollowerOrFutureReplica.)"""
        if len(records) < HEADER_BYTES:
            return
        base_offset, _, _, _, _, _, last_offset_delta, *_ = HEADER.unpack_from(records)
        if 0 <= base_offset < self.log_end_offset <= base_offset + last_offset_delta:
            self.truncate_fully_and_start_at(base_offset, now_ms)

    def _truncate(self, offset: int, now_ms: int) -> None:
        self._forget_swap()
        kept = self._segment_index(offset) + 1
        self._unlink_segments(kept)
        self._active = active = self._segments[-1]
        active.activate()
        found = active.locate(offset)
        if found is not None:
            active.truncate_to(found[0], found[2])
        self._epochs.truncate_from_end(offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point_fell |= offset < self.recovery_point
        self.recovery_point = min(self.recovery_point, offset)
        self._producers.delete_snapshots_above(offset)
        if self._producers.entries:
            replay_producers(self._producers, self._segments, self.log_start_offset, offset, now_ms)
        self._after_truncation()

    def _after_truncation(self) -> None:
        self._generation += 1
        self.is_cut = True
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, self.log_end_offset)
        self._known_positions.clear()
        self._rolled_offset = min(self._rolled_offset, self._active.base_offset)
        self._set_roll_limits()
        self._set_flushes_soon()

    def _unlink_segments(self, kept: int) -> None:
        # The last first: should this be cut short, what is left has no gap.
        for segment in reversed(self._segments[kept:]):
            self._producers.delete_snapshot(segment.base_offset)
            for path in segment.mark_deleted():
                self._files.unlink(path)
        del self._segments[kept:]
        del self._bases[kept:]
        self._directory_changed = True

    # Retention

    def advance_log_start_offset(self, offset: int) -> None:
        """Hides everything below the offset (DeleteRecords, or the leader's log start offset). Nothing happens if it
        lies below the log start offset; OFFSET_OUT_OF_RANGE beyond the high watermark."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the high watermark {self.high_watermark}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            try:
                self._epochs.truncate_from_start(offset)
            except OSError as error:
                self._fail(error, "cannot write the leader epochs")

    def delete_old_segments(self, now_ms: int) -> list[str]:
        """Removes the segments that retention.ms, retention.bytes or the log start offset no longer let stay.

        Their files are renamed to *.deleted; the paths are returned, to be unlinked after file.delete.delay.ms. While
        the log is being compacted nothing is removed.
        """
        return [] if self.cleaning else self.delete_segments(self.old_segments_count(now_ms), now_ms)

    def old_segments_count(self, now_ms: int) -> int:
        """How many of the oldest segments retention no longer lets stay."""
        config = self._config
        try:
            due = segments_to_delete(
                self._segments,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                delete_policy=config.delete,
            )
        except OSError as error:
            self._fail(error, "cannot tell the age of a segment")
        return len(due)

    def delete_segments(self, count: int, now_ms: int) -> list[str]:
        """Removes the oldest segments, as delete_old_segments does; rolls first if that is all of them. After an error
        some may be gone, and the next call returns their paths as well."""
        if not count:
            return self._take_doomed()
        if count == len(self._segments):
            try:
                self.roll(now_ms)
            except KafkaError as error:
                # Without room for a new one the active segment stays until the others have made some.
                if not is_full(error) or count == 1:
                    raise
            count = min(count, len(self._segments) - 1)
        self.advance_log_start_offset(max(self.log_start_offset, self._bases[count]))
        self._directory_changed = True
        try:
            for _ in range(count):
                self._doomed += self._producers.mark_snapshot_deleted(self._bases[0])
                self._doomed += self._segments[0].mark_deleted()
                del self._segments[0], self._bases[0]
        except OSError as error:
            self._fail(error, "cannot delete a segment")
        return self._take_doomed()

    def _take_doomed(self) -> list[str]:
        paths, self._doomed = self._doomed, []
        return paths

    # Flushing

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages, flush.ms, or a segment that was rolled since the last flush asks for one."""
        if self._rolled_offset > self.recovery_point or self.distrusted or self.is_cut:
            return True
        unflushed = self.unflushed_messages
        config = self._config
        return unflushed > 0 and (unflushed >= config.flush_messages or now_ms - self.last_flush_ms >= config.flush_ms)

    def plan_flush(self, now_ms: int = 0, *, rolled_only: bool = False, hold: bool = True) -> FlushPlan | None:
        """What must be synced for the recovery point to move up to the log end offset; None if nothing must. With
        `rolled_only` up to the active segment, which costs less; and never more than SEGMENTS_PER_FLUSH segments at a
        time. Each plan must come back through `flushed`. Without `hold` it is a plan of all segments that holds no
        files and is not to be run: somebody syncs the whole file system. A log that is `distrusted` needs its own."""
        if self.distrusted:
            if not hold:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition} has to be written again"
                )
            rolled_only = False
        target = self._active.base_offset if rolled_only else self.log_end_offset
        first = self._segment_index(self.recovery_point)
        if hold and not self.is_cut and len(self._segments) - first > SEGMENTS_PER_FLUSH:
            target = self._bases[first + SEGMENTS_PER_FLUSH]
        changed = self._directory_changed or self._epochs.dirty or self._producers.unsynced_snapshots or self.is_cut
        if target <= self.recovery_point and not changed and not self.distrusted:
            return None
        rewritten: list[tuple[Segment, int]] = []
        held: list[File] = []
        paths = [*self._producers.unsynced_snapshots]
        if self._epochs.dirty:
            paths.append(self._epochs.path)
        try:
            self._epochs.write_unwritten()
            for segment in self._segments[first:]:
                # Of an empty one the folder's names are enough, unless it was cut.
                if (
                    segment.base_offset < target
                    or (self._directory_changed and not rolled_only and segment.size_bytes)
                    or (self.is_cut and segment is self._active)
                ):
                    segment.write_indexes()
                    if hold:
                        held += segment.files()
                    if self.distrusted:
                        found = segment.locate(max(self.recovery_point, segment.base_offset))
                        rewritten.append((segment, segment.size_bytes if found is None else found[0]))
            plan = FlushPlan(
                self._files,
                held,
                paths,
                self.directory if self._directory_changed or paths else None,
                max(target, self.recovery_point),
                self._generation,
                now_ms,
                rewritten,
            )
        except OSError as error:
            self._fail(error, "cannot open files to sync them")
        self._directory_changed = False
        self._epochs.dirty = False
        self._producers.unsynced_snapshots = []
        return plan

    def flushed(self, plan: FlushPlan) -> None:
        """Takes a plan back after its run, and moves the recovery point. If a sync failed, nobody knows any more what
        is on the disk: KAFKA_STORAGE_ERROR is raised, and the log goes offline. Where there was no room it is only
        `distrusted`, until a later plan has written everything again."""
        plan.release()
        if plan.error is not None and not is_full(plan.error):
            self._take_offline(plan.error)
            self._fail(plan.error, "cannot sync")
        if not plan.done or plan.generation != self._generation:
            # Not run, or truncated meanwhile: what it synced is to be synced again.
            self._directory_changed = True
            self._epochs.dirty = True
            self._producers.unsynced_snapshots += [path for path in plan.paths if path != self._epochs.path]
            self._cut_rewritten(plan)
            if plan.error is not None:
                self.distrusted = True
                self._set_roll_limits()
                self._set_flushes_soon()
                self._fail(plan.error, "cannot sync")
            return
        self.last_flush_ms = max(self.last_flush_ms, plan.planned_ms)
        self.is_cut = False
        if plan.offset > self.recovery_point:
            self.recovery_point = plan.offset
        if self.distrusted and self.recovery_point >= self.log_end_offset:
            self.distrusted = False
            self._set_roll_limits()
        self._set_flushes_soon()

    def _cut_rewritten(self, plan: FlushPlan) -> None:
        """A truncation meanwhile may have been undone by a write behind the new end. Nothing was appended since."""
        try:
            for segment, _ in plan.rewritten:
                if any(segment is one for one in self._segments):
                    segment.log.truncate(segment.size_bytes)
        except OSError as error:
            self._take_offline(error)
            self._fail(error, "cannot cut a segment")

    def flush(self, now_ms: int = 0) -> None:
        """Plans, runs and notes a flush right here. For tools, and for topics with flush.messages=1 on a thread."""
        plan = self.plan_flush(now_ms)
        if plan is not None:
            plan.run()
            self.flushed(plan)

    # The end

    def plan_close(self, now_ms: int = 0, *, hold: bool = True) -> FlushPlan | None:
        """Writes what a start without recovery relies on; what comes back is to be run and given to `flushed`, then
        comes `close`. `hold` as in plan_flush."""
        try:
            # A log that never held anything needs no snapshot to say so.
            if self.log_end_offset > self._bases[0] or self._producers.entries:
                self._producers.take_snapshot(self.log_end_offset)
            self._active.become_inactive()
        except OSError as error:
            self._fail(error, "cannot close")
        return self.plan_flush(now_ms, hold=hold)

    def close(self, clean: bool) -> None:
        """Gives all files back. `clean` completes what a start without recovery relies on (the last time index entry,
        a producer snapshot) and syncs everything; without it nothing is written any more."""
        if clean and not self.offline:
            plan = self.plan_close()
            if plan is not None:
                plan.run()
                self.flushed(plan)
        for segment in self._segments:
            segment.close()


def list_segments(files: Files, directory: str, now_ms: int = 0) -> list[Segment]:
    """The segments in a folder, in offset order, none of them read."""
    found = []
    for name, is_directory, size_bytes in files.list_directory(directory):
        stem = name.removesuffix(LOG_SUFFIX)
        if name.endswith(LOG_SUFFIX) and len(stem) == 20 and stem.isascii() and stem.isdigit() and not is_directory:
            found.append((int(stem), size_bytes))
    return [
        Segment.open(files, directory, base_offset, size_bytes=size_bytes, now_ms=now_ms)
        for base_offset, size_bytes in sorted(found)
    ]


def epochs_of_batches(segments: list[Segment]) -> list[tuple[int, int]]:
    """The (leader epoch, start offset) pairs that the batches themselves tell of; reads all their headers."""
    entries: list[tuple[int, int]] = []
    for segment in segments:
        for _, _, base_offset, _, epoch, *_ in segment.scan(verify_crc=False):
            if epoch > (entries[-1][0] if entries else -1):
                entries.append((epoch, base_offset))
    return entries


def replay_producers(
    producers: ProducerStates, segments: list[Segment], log_start_offset: int, log_end_offset: int, now_ms: int
) -> None:
    """Brings producers to the state of the log end offset: from the newest snapshot, and the batches after it."""
    from_offset = producers.load(log_start_offset, log_end_offset, now_ms)
    for index, segment in enumerate(segments):
        upper_offset = segments[index + 1].base_offset if index + 1 < len(segments) else log_end_offset
        if upper_offset <= from_offset or not segment.size_bytes:
            continue
        start = segment.locate(max(from_offset, segment.base_offset))
        if start is not None:
            for batch in segment.scan(start[0], verify_crc=False):
                if batch[3] >= log_end_offset:
                    break
                producers.replay(batch)
