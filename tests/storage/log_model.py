"""A slow, obvious model of what a log must hold after whatever has happened to it (tests.storage.log_life)."""

from __future__ import annotations

import random
from typing import NamedTuple

from gregor.config.broker import BrokerConfig
from gregor.protocol.ids import random_uuid
from gregor.protocol.records.batch import Record, RecordBatch, iter_batches
from gregor.protocol.turns import run_all
from gregor.storage.folders.manager import LogManager
from gregor.storage.folders.move import LogMove
from gregor.storage.log.flush import FlushPlan
from gregor.storage.log.log import Log
from tests.storage.compacting import all_batches
from tests.storage.logs import NOW_MS, log_config
from tests.storage.memory_files import MemoryFile, MemoryFiles

FOLDERS = ("/data", "/more")
KEY = "orders", 0
TOPIC_ID = random_uuid()
NEVER = -1
GONE = -2
POLICIES = (["compact"], ["delete"], ["compact", "delete"])


class Crash(BaseException):
    """The process is gone."""


class CrashingFiles(MemoryFiles):
    """Crashes after so many steps; a write is then done in part."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_left = NEVER

    def count(self, operation: str, path: str) -> int | None:
        if operation == "read" or self.steps_left == NEVER:
            return super().count(operation, path)
        if self.steps_left > 0:
            self.steps_left -= 1
            return super().count(operation, path)
        is_torn = operation == "write" and self.steps_left == 0
        self.steps_left = GONE
        if not is_torn:
            raise Crash
        super().count(operation, path)
        return 9


class Written(NamedTuple):
    """A record as the model knows it."""

    record: Record
    epoch: int


class Producer:
    def __init__(self) -> None:
        self.epoch = 0
        self.next_sequence = 0
        self.last: tuple[bytes, int, int] | None = None
        """Its last batch as it was sent, and the offsets it got."""


class LogModel:
    """The log that is tested, and the knowledge of what it must contain. `trace` lists the steps, to help to find the
    reason of a failure."""

    def __init__(self, seed: int) -> None:
        self.random = rng = random.Random(seed)
        self.files = CrashingFiles()
        for folder in FOLDERS:
            self.files.make_directory(folder)
        self.policy = frozenset(rng.choice(POLICIES))
        self.config = log_config(
            segment_bytes=rng.choice([600, 1200, 3000]),
            index_interval_bytes=rng.choice([0, 100, 300]),
            cleanup_policy=self.policy,
            retention_bytes=rng.choice([-1, 3000, 8000]),
            retention_ms=rng.choice([-1, 20_000]),
            delete_retention_ms=rng.choice([0, 5000]),
            segment_index_bytes=rng.choice([48, 10_000]),
        )
        self.trace: list[str] = []
        self.now_ms = NOW_MS
        self.epoch = 0
        # The model.
        self.written: dict[int, Written] = {}
        self.lost: set[int] = set()
        """Records that a crash of the machine has lost, or may have lost, as they were not synced."""
        self.end = 0
        self.start = 0
        """No record at or above it was ever given up, except to compaction."""
        self.least_start = 0
        """The lowest log start offset that can result from a crash of the process."""
        self.trimmed_to = 0
        """The highest start that the log ever had, if only for a moment: epochs are forgotten below it."""
        self.cleaned_to = 0
        """Below this offset, compaction may have removed records that a later record below it makes obsolete."""
        self.producers: dict[int, Producer] = {}
        self.history: list[tuple[int, int, int, int, int]] = []
        """First offset, last offset, producer, its epoch, its next sequence: of the batches that are in the log."""
        # The log under test.
        self.manager = self.started()
        self.log = self.manager.get_or_create(*KEY, TOPIC_ID, self.config)
        self.flush: tuple[Log, FlushPlan] | None = None
        self.move: LogMove | None = None
        self.unlinkable: list[str] = []
        self.start_may_be = (0, 0)
        self.end_may_be = (0, 0)

    def started(self) -> LogManager:
        manager = LogManager(BrokerConfig({"log.dirs": ",".join(FOLDERS)}), self.files, lambda: self.now_ms)
        for _ in manager.load(lambda topic: self.config):
            pass
        assert manager.failed == {}
        return manager

    def start_again(self, *, machine: bool, synced: int = 0) -> None:
        """`synced` is what the disk must hold after a crash of the machine."""
        self.manager = self.started()
        log = self.log = self.manager.logs[KEY]
        self.flush = self.move = None
        self.unlinkable = self.manager.pop_unlinkable()
        self.least_start = log.log_start_offset
        if not machine:
            assert self.start_may_be[0] <= log.log_start_offset <= self.start_may_be[1]
        assert self.end_may_be[0] <= log.log_end_offset <= self.end_may_be[1], self.end_may_be
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        if machine:
            # Of what was not synced any part may be gone, and not only at the end.
            present = self._read()
            self.lost.update(one for one in self.written if one >= synced and one not in present)
            bases = {batch.base_offset for batch in all_batches(log)}
            kept_below = max(synced, self.cleaned_to)  # the snapshots contain what compaction removed
            self.history = [one for one in self.history if one[1] < kept_below or one[0] in bases]
        self.start = max(self.start, log.log_start_offset)
        self.end = max(self.end, log.log_end_offset)
        self.forget_from(log.log_end_offset)
        self.start = min(self.start, self.end)
        for producer_id, (last_offset, epoch, next_sequence) in self._last_batches().items():
            if last_offset >= max(log.log_start_offset, self.start):
                entry = log.producers.entries[producer_id]
                assert (entry.epoch, entry.next_sequence) == (epoch, next_sequence), producer_id
        self.check()

    def _last_batches(self) -> dict[int, tuple[int, int, int]]:
        return {one: (last, epoch, following) for _, last, one, epoch, following in self.history if one >= 0}

    def forget_from(self, offset: int) -> None:
        """Note that the log now ends at `offset`; producers continue from the batches that it contains."""
        self.end = offset
        for gone in [one for one in self.written if one >= offset]:
            del self.written[gone]
        self.history = [one for one in self.history if one[1] < offset]
        found = self._last_batches()
        for producer_id, producer in self.producers.items():
            _, epoch, next_sequence = found.get(producer_id, (0, producer.epoch + 1, 0))
            known = producer_id in self.log.producers.entries
            if not known or (epoch, next_sequence) != (producer.epoch, producer.next_sequence):
                producer.epoch, producer.next_sequence, producer.last = epoch + 1, 0, None

    # Invariants

    def check(self) -> None:
        log = self.log
        assert log.log_end_offset == self.end
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        present = self._read()
        for offset, (record, epoch) in present.items():
            assert self.written[offset] == (record, epoch), (offset, self.written[offset], record, epoch)
        later: set[bytes | None] = set()
        for offset in sorted(self.written, reverse=True):
            if offset < max(self.start, log.log_start_offset):
                break
            record = self.written[offset].record
            may_go = offset < self.cleaned_to and (record.key in later or record.value is None)
            assert offset in present or may_go or offset in self.lost, f"offset {offset} is gone"
            if offset < self.cleaned_to:
                later.add(record.key)
        self.trimmed_to = max(self.trimmed_to, log.log_start_offset)
        starts = log.epochs.entries()
        assert starts == sorted(starts)
        for offset, (_, epoch) in present.items():
            if offset < self.trimmed_to:
                continue  # a crash brought it back
            assert log.epochs.epoch_for_offset(offset) == epoch
        timestamp_ms = self.now_ms + self.random.randrange(-20_000, 2000)
        found = run_all(log.offset_for_timestamp(timestamp_ms))
        wanted = next((one for one in sorted(present) if present[one].record.timestamp >= timestamp_ms), None)
        assert (None if found is None else found[1]) == wanted
        assert log.size_bytes == sum(segment.log.size_bytes() for segment in log.segments)
        held = self.flush is not None and self.flush[0] is log
        for segment in log.segments:
            for file in segment.files():
                assert held or (isinstance(file, MemoryFile) and not file.holds)

    def _read(self) -> dict[int, Written]:
        """All records that a reader gets, by offset."""
        log, found, offset = self.log, dict[int, Written](), self.log.log_start_offset
        while offset < log.log_end_offset:
            piece = log.read(offset, self.random.choice([1, 100, 1000]), log.log_end_offset)
            batches: list[RecordBatch] = list(iter_batches(piece.read()))
            piece.release()
            if not batches:
                break
            for batch in batches:
                assert batch.crc_ok()
                for record in batch.records():
                    if record.offset >= offset:
                        assert record.offset not in found
                        found[record.offset] = Written(record, batch.leader_epoch)
            assert batches[-1].next_offset > offset, "the reader gets on"
            offset = batches[-1].next_offset
        return found
