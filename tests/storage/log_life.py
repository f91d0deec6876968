"""A log under every event that a log can meet, compared with a model of the records that it must contain.

A `LogLife` does random steps: appends of several producers, rolls, flushes, retention, DeleteRecords, compactions and
moves in pieces with other steps between, truncations, errors of the disk, stops, and crashes in the middle of any of
these: of the process, which loses no written byte, or of the machine, which loses what was not synced. After each
start, and now and then, what can be read is compared with what was written.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from gregor.protocol.errors import KafkaError
from gregor.protocol.records.batch import Record, build_batch
from gregor.protocol.records.compression import GZIP, NONE
from gregor.protocol.turns import run_all
from gregor.storage.cleaner.cleaner import CleaningRun
from gregor.storage.folders.move import MOVED_FILE
from gregor.storage.log.compaction import SourceSegment
from gregor.storage.log.log import Log
from gregor.storage.log.swap import LogChanged, SwapPlan, unlink_unfinished
from gregor.storage.segment.segment import Segment
from tests.storage.compacting import job_for, live_producers
from tests.storage.log_model import FOLDERS, KEY, NEVER, Crash, LogModel, Producer, Written

KEYS = (b"a", b"b", b"c", b"d")
PRODUCERS = (7, 8, 9)
FAULTS = ("write", "create", "rename", "write_atomically", "truncate", "sync", "unlink", "sync_directory")


class Cleaning:
    """A compaction under way, as the broker steers it."""

    def __init__(self, run: CleaningRun, segments: dict[int, Segment], generation: int, log: Log) -> None:
        self.run = run
        self.groups: list[list[SourceSegment]] = run.groups()
        self.segments = segments
        self.generation = generation
        self.log = log
        self.swap: SwapPlan | None = None


class LogLife(LogModel):
    """One life, of a seed."""

    cleaning: Cleaning | None = None

    # The steps

    def step(self) -> None:
        rng = self.random
        self.now_ms += rng.choice([0, 1, 500, 3000, -700])
        self.files.now_ms = self.now_ms
        action = rng.choices(list(self.actions), list(self.actions.values()))[0]
        if self.log.distrusted and rng.random() < 0.3:  # as the broker does after a while
            self._flush_now()
        self.trace.append(action.__name__)
        faulty = False
        self.files.steps_left = NEVER
        chance = rng.random()
        if chance < 0.04:
            self.files.steps_left = rng.randrange(12)
        elif chance < 0.10:
            faulty = True
            code = rng.choice([errno.ENOSPC, errno.ENOSPC, errno.EIO])
            self.files.fail(rng.choice(FAULTS), rng.randrange(3), OSError(code, "made to fail"))
        self.start_may_be = self.least_start, self.log.log_start_offset
        self.end_may_be = self.end, self.end
        try:
            action(self)
        except Crash:
            self._crash()
        except (KafkaError, OSError, LogChanged) as error:
            self.trace.append(f"  {error}")
            assert faulty or isinstance(error, LogChanged) or self.log.distrusted, error
            cause = error if isinstance(error, OSError) else error.__cause__
            if self.log.offline or (isinstance(cause, OSError) and cause.errno == errno.EIO):
                self._crash()
            else:
                self._settle_after_error()
        finally:
            self.files.steps_left = NEVER
            self.files.clear_faults()

    def _settle_after_error(self) -> None:
        """Adopt the state that a broker would now find in the log."""
        assert self.start_may_be[0] <= self.log.log_start_offset <= self.start_may_be[1]
        self.start = max(self.start, self.log.log_start_offset)
        assert self.log.log_end_offset == self.end

    def append(self) -> None:
        rng, log = self.random, self.log
        if rng.random() < 0.1:
            self.epoch += 1
        producer_id = rng.choice((-1, -1, *PRODUCERS))
        producer = self.producers.setdefault(producer_id, Producer())
        if producer_id >= 0 and producer.last is not None and rng.random() < 0.15:
            data, first, last = producer.last
            info = log.append_as_leader(data, self.epoch, self.now_ms)
            assert (info.first_offset, info.last_offset, info.duplicate) == (first, last, True)
            return
        if producer_id >= 0 and rng.random() < 0.05:
            producer.epoch += 1
            producer.next_sequence = 0
        records = [
            Record(index, self.now_ms + rng.randrange(-5000, 1000), self._key(), self._value(), [])
            for index in range(rng.choice([1, 1, 2, 5]))
        ]
        data = bytes(
            build_batch(
                records,
                compression=rng.choice([NONE, NONE, NONE, GZIP]),
                producer_id=producer_id,
                producer_epoch=producer.epoch if producer_id >= 0 else -1,
                base_sequence=producer.next_sequence if producer_id >= 0 else -1,
            )
        )
        first, count = self.end, len(records)
        for record in records:
            offset = first + record.offset
            self.lost.discard(offset)
            self.written[offset] = Written(record._replace(offset=offset), self.epoch)
        self.end_may_be = first, first + count
        sequence = producer.next_sequence
        appended = (first, first + count - 1, producer_id, producer.epoch, sequence + count)
        self.history.append(appended)
        try:
            info = log.append_as_leader(data, self.epoch, self.now_ms)
        except KafkaError:
            self.forget_from(first)
            raise
        assert (info.first_offset, info.last_offset, info.duplicate) == (first, first + count - 1, False)
        self.end = first + count
        producer.next_sequence = sequence + count
        producer.last = data, info.first_offset, info.last_offset
        if rng.random() < 0.8:
            log.offsets.restore_high_watermark(log.log_end_offset)

    def _key(self) -> bytes | None:
        return self.random.choice(KEYS)

    def _value(self) -> bytes | None:
        return None if self.random.random() < 0.2 else self.random.randbytes(self.random.randrange(60))

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def raise_high_watermark(self) -> None:
        self.log.offsets.restore_high_watermark(self.random.randint(self.log.high_watermark, self.log.log_end_offset))

    def retain(self) -> None:
        before = self.log.log_start_offset
        self.start_may_be = self.least_start, self.log.high_watermark
        paths = self.log.retention.delete_due(self.now_ms)
        assert before <= self.log.log_start_offset <= self.log.high_watermark
        self.start = max(self.start, self.log.log_start_offset)
        self.least_start = max(self.least_start, self.log.first_segment_offset)
        self.unlinkable += paths

    def delete_records(self) -> None:
        if "delete" not in self.policy:
            return
        offset = self.random.randint(0, self.log.high_watermark)
        self.start_may_be = self.least_start, max(self.log.log_start_offset, offset)
        self.log.retention.advance_log_start_offset(offset)
        self.start = max(self.start, offset)
        self._report(self.manager.checkpoints.log_starts()())

    def _report(self, errors: dict[str, OSError]) -> None:
        """Note whether the checkpoints were written, among them those of the log start offsets."""
        if not errors:
            self.least_start = max(self.least_start, self.log.log_start_offset)

    def unlink_leftovers(self) -> None:
        while self.unlinkable:
            path = self.unlinkable.pop()
            if self.files.exists(path) and path.rpartition("/")[0] in FOLDERS:
                self.files.remove_directory(path)
            else:
                self.files.unlink(path)

    def plan_flush(self) -> None:
        if self.flush is None:
            plan = self.log.flusher.plan(self.now_ms, rolled_only=self.random.random() < 0.5)
            if plan is not None:
                self.flush = self.log, plan

    def finish_flush(self) -> None:
        if self.flush is not None:
            (log, plan), self.flush = self.flush, None
            try:
                if self.random.random() < 0.9:
                    plan.run()
            finally:
                log.flusher.flushed(plan)

    def _flush_now(self, *, rolled_only: bool = False) -> None:
        """One flush comes after the other: the broker has one thread for them."""
        if self.flush is not None:
            (log, plan), self.flush = self.flush, None
            plan.run()
            log.flusher.flushed(plan)
        plan = self.log.flusher.plan(self.now_ms, rolled_only=rolled_only)
        if plan is not None:
            plan.run()
            self.log.flusher.flushed(plan)

    def checkpoint(self) -> None:
        checkpoints = self.manager.checkpoints
        for write in (checkpoints.recovery_points, checkpoints.high_watermarks, checkpoints.cleaned_offsets):
            if self.random.random() < 0.7:
                plan = run_all(write())
                errors = {} if plan is None else plan()
                if write == checkpoints.recovery_points:
                    self._report(errors)

    # Compaction, as gregor.broker.jobs.log_cleaner does it

    def begin_cleaning(self) -> None:
        log = self.log
        if self.cleaning is not None or "compact" not in self.policy or log.work.moving or log.offline:
            return
        self._flush_now(rolled_only=True)
        errors = run_all(self.manager.checkpoints.recovery_points())()
        self._report(errors)
        if errors:
            return
        dirty = log.dirty_range(self.now_ms)
        if dirty.restarts:
            log.offsets.mark_cleaned_to(dirty.first_dirty_offset)
        if not dirty.cleanable_bytes:
            return
        segments = {one.base_offset: one for one in log.segments if one.base_offset < dirty.first_uncleanable_offset}
        changes = {"segment_bytes": self.random.choice([self.config.segment_bytes, 6000])}
        if self.random.random() < 0.3:
            changes["map_bytes"] = 24 * 8  # becomes full
        run = CleaningRun(self.files, job_for(log, self.now_ms, **changes), live_producers(log))
        run.build_map()
        self.cleaned_to = max(self.cleaned_to, run.end_offset)
        log.work.begin_cleaning()
        self.cleaning = Cleaning(run, segments, log.generation, log)

    def clean_on(self) -> None:
        cleaning = self.cleaning
        if cleaning is None:
            return
        log = cleaning.log
        try:
            if cleaning.swap is not None:
                plan, cleaning.swap = cleaning.swap, None
                try:
                    plan.sync()
                    replaced = log.swap.finish(plan)
                except Crash:
                    raise
                except BaseException:
                    unlink_unfinished(self.files, log.directory, log.swap.discard(plan))
                    raise
                plan.sync()
                self.unlinkable += replaced
            elif cleaning.groups:
                done = cleaning.run.clean(cleaning.groups.pop(0))
                sources = [cleaning.segments[base] for base in done.sources]
                cleaning.swap = log.swap.begin(done.base_offset, done.size_bytes, sources, cleaning.generation)
            else:
                log.work.end_cleaning()
                self.cleaning = None
                if log.generation == cleaning.generation:
                    log.offsets.mark_cleaned_to(cleaning.run.end_offset)
                self.manager.report(run_all(self.manager.checkpoints.cleaned_offsets())())
        except (LogChanged, KafkaError, OSError):
            log.work.end_cleaning()
            self.cleaning = None
            with suppress(OSError):
                unlink_unfinished(self.files, log.directory)
            raise

    # Moves, as gregor.broker.jobs.log_mover makes them

    def begin_move(self) -> None:
        if self.move is None and not self.log.offline:
            home = self.manager.folder_of(self.log)
            (folder,) = [one for one in self.manager.folders if one.path != home]
            self.move = self.manager.moves.begin(KEY, folder)

    def move_on(self) -> None:
        move = self.move
        if move is None:
            return
        try:
            if (plan := move.plan(self.random.choice([200, 1 << 20]))) is not None:
                plan.run()
                move.copied(plan)
                return
            errors = run_all(self.manager.checkpoints.recovery_points())()
            if move.folder.path in errors:
                raise errors[move.folder.path]
            if not move.is_caught_up():
                return
            self.move = None
            moved, old = self.manager.finish_move(move)
        except (KafkaError, OSError, ValueError):
            self.move = None
            if (copy := self.manager.moves.cancel(KEY)) is not None:
                self.unlinkable.append(copy)
            raise
        self.log = moved
        self._report(run_all(self.manager.checkpoints.recovery_points())())
        self.unlinkable += [f"{moved.directory}/{MOVED_FILE}", old]

    def cancel_move(self) -> None:
        self.move = None
        if (copy := self.manager.moves.cancel(KEY)) is not None:
            self.unlinkable.append(copy)

    def truncate(self) -> None:
        log = self.log
        # Records that are committed, or were compacted with the knowledge of later ones, are never truncated. A batch
        # begins at the offset: batches are removed as a whole, so that an offset within one would leave a gap.
        # No fault is injected here: a broker would truncate again what its leader does not have.
        self.files.steps_left = NEVER
        self.files.clear_faults()
        least = max(log.high_watermark, self.cleaned_to, log.log_start_offset)
        begins = [one[0] for one in self.history if one[0] >= least]
        offset = self.random.choice([*begins, self.end])
        before = self.end
        self.end_may_be = offset, before
        log.truncate_to(offset, self.now_ms)
        self.forget_from(offset)
        assert log.log_end_offset == self.end
        self._flush_now()
        # Of an empty one a flush makes durable the name alone.
        self.files.content(log.segments[-1].log.path).durable = self.files.read_bytes(log.segments[-1].log.path)
        self._report(run_all(self.manager.checkpoints.recovery_points())())

    # Ends

    def stop(self) -> None:
        self.trace.append("  stop")
        self.files.steps_left = NEVER
        self.files.clear_faults()
        if self.cleaning is not None and self.cleaning.swap is not None:
            paths = self.log.swap.discard(self.cleaning.swap)
            unlink_unfinished(self.files, self.log.directory, paths)
        self.finish_flush()
        offline = self.log.offline
        known = {one: (entry.epoch, entry.next_sequence) for one, entry in self.log.producers.entries.items()}
        self.manager.close_all()
        self.cleaning = None
        self.start_again(machine=False)
        if not offline:
            assert all(folder.was_clean for folder in self.manager.folders)
            if self.log.log_end_offset:
                again = {one: (entry.epoch, entry.next_sequence) for one, entry in self.log.producers.entries.items()}
                assert again == known

    def _crash(self) -> None:
        machine = self.random.random() < 0.5
        self.trace.append(f"  crash of the {'machine' if machine else 'process'}")
        self.files.steps_left = NEVER
        self.files.clear_faults()
        synced = self.log.recovery_point
        if synced < self.log.first_segment_offset:
            synced = 0  # what was synced is deleted: nothing that is left needs to be found
        self.trimmed_to = max(self.trimmed_to, self.log.log_start_offset)
        self.files.mend_syncs()  # a disk that failed is repaired before a broker is started on it
        if machine:
            self.files.crash()
            self.end_may_be = min(synced, self.end_may_be[0]), self.end_may_be[1]
            self.start_may_be = 0, self.start_may_be[1]
        if self.random.random() < 0.3:  # and again, in the middle of the start
            self.files.steps_left = self.random.randrange(30)
            try:
                self.started()
            except Crash:
                self.trace.append("  crash of the start")
            self.files.steps_left = NEVER
            if machine:
                self.files.crash()
        self.cleaning = None
        self.start_again(machine=machine, synced=synced)

    actions: ClassVar[dict[Callable[[LogLife], None], int]] = {
        append: 40,
        roll: 3,
        raise_high_watermark: 3,
        retain: 4,
        delete_records: 2,
        unlink_leftovers: 4,
        plan_flush: 4,
        finish_flush: 4,
        checkpoint: 4,
        begin_cleaning: 4,
        clean_on: 12,
        begin_move: 1,
        move_on: 8,
        cancel_move: 1,
        truncate: 1,
        LogModel.check: 5,
        stop: 1,
        _crash: 1,
    }
