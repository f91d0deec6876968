"""A log under random transactions and everything that may happen to a log, compared with a twin after each step."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import Record, build_batch
from gregor.protocol.records.control import EndTransaction
from gregor.storage.log.contents import LogIdentity
from gregor.storage.producers.state import DEFAULT_EXPIRATION_MS
from gregor.storage.recovery.recovery import FolderLoader, LogCheckpoint
from tests.storage.compacting import compact
from tests.storage.logs import DIRECTORY, NOW_MS, append_marker, is_open, log_config, open_log
from tests.storage.memory_files import MemoryFiles
from tests.storage.transaction_twin import Appended, TransactionTwin, consumed, index_entries

KEYS = (b"a", b"b", b"c", b"d", b"e")
PRODUCERS = (1, 2, 3, 4)


class TransactionLife:
    """One life, of a seed. `trace` helps to find the reason of a failure."""

    def __init__(self, seed: int) -> None:
        self.random = rng = random.Random(seed)
        self.files = MemoryFiles()
        self.settings: dict[str, Any] = {
            "segment_bytes": rng.choice([500, 1500, 1 << 20]),
            "index_interval_bytes": rng.choice([0, 200]),
            "cleanup_policy": frozenset(rng.choice([["delete"], ["compact", "delete"]])),
            "retention_ms": -1,
            "delete_retention_ms": rng.choice([0, 10_000_000]),
        }
        self.log = open_log(self.files, **self.settings)
        self.copy = open_log(MemoryFiles(), **self.settings)
        self.twin = TransactionTwin()
        self.coordinator_epoch = 0
        self.cleaned_to = 0
        self.decided_to = 0
        """Transactions with a marker below it may count as decided, although it lies above the high watermark."""
        self.trace: list[str] = []

    def step(self) -> None:
        action = self.random.choices(list(self.actions), list(self.actions.values()))[0]
        self.trace.append(f"{action.__name__} at {self.log.log_end_offset}")
        action(self)
        self.check()

    # Appends

    def _next(self, producer_id: int) -> tuple[int, int]:
        """The epoch and the next sequence of a producer."""
        epoch = sequence = 0
        for one in self.twin.batches:
            if one.producer_id == producer_id:
                if one.epoch != epoch:
                    epoch, sequence = one.epoch, 0
                if one.kind in ("plain", "transactional"):
                    sequence += one.last_offset - one.base_offset + 1
        return epoch, sequence

    def _append(self, producer_id: int, kind: str) -> None:
        keys = tuple(self.random.choices(KEYS, k=self.random.choice([1, 1, 2, 4])))
        epoch, sequence = self._next(producer_id) if producer_id >= 0 else (-1, -1)
        if self.log.log_start_offset and (entry := self.log.producers.entries.get(producer_id)) is not None:
            sequence = entry.next_sequence  # its last batch may be deleted, and its marker not
        first = self.log.log_end_offset
        batch = build_batch(
            [Record(at, NOW_MS, key, b"of %d" % (first + at), []) for at, key in enumerate(keys)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=kind == "transactional",
        )
        info = self.log.append_as_leader(batch, 0, NOW_MS)
        assert info.first_offset == first
        self.twin.batches.append(Appended(first, info.last_offset, producer_id, epoch, kind, keys))

    def append_transactional(self) -> None:
        self._append(self.random.choice(PRODUCERS), "transactional")

    def append_plain(self) -> None:
        producer_id = self.random.choice((-1, *PRODUCERS))
        if producer_id in self.twin.open_transactions() and is_open(self.log, producer_id, self._next(producer_id)[0]):
            with pytest.raises(KafkaError) as raised:
                self._append(producer_id, "plain")
            assert raised.value.code is ErrorCode.INVALID_TXN_STATE
        elif producer_id not in self.twin.open_transactions():
            self._append(producer_id, "plain")

    def end(self) -> None:
        begun = [*self.twin.open_transactions()]
        producer_id = self.random.choice(begun if begun and self.random.random() < 0.9 else PRODUCERS)
        self.coordinator_epoch += self.random.random() < 0.1
        version = self.random.choice([0, 2])
        epoch = self._next(producer_id)[0] + (version == 2)
        commit = self.random.random() < 0.5
        marker = EndTransaction(producer_id, epoch, self.coordinator_epoch, commit, version)
        info = append_marker(self.log, marker)
        kind = "commit" if commit else "abort"
        self.twin.batches.append(
            Appended(info.first_offset, info.last_offset, producer_id, epoch, kind, (), self.coordinator_epoch)
        )

    def refuse_markers(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        entry = self.log.producers.entries.get(producer_id)
        if entry is None:
            return
        current = self._next(producer_id)[0]
        refused = [(EndTransaction(producer_id, current - 1, 2**30, True), ErrorCode.INVALID_PRODUCER_EPOCH)]
        if entry.coordinator_epoch >= 0:
            older = EndTransaction(producer_id, current + 1, entry.coordinator_epoch - 1, False, 2)
            refused.append((older, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
        if is_open(self.log, producer_id, current):
            old_marker = EndTransaction(producer_id, current, 2**30, False, 2)
            refused.append((old_marker, ErrorCode.INVALID_PRODUCER_EPOCH))
        for marker, code in refused:
            with pytest.raises(KafkaError) as raised:
                append_marker(self.log, marker)
            assert raised.value.code is code

    # Everything else

    def raise_high_watermark(self) -> None:
        """To the end of a batch."""
        ends = [one.last_offset + 1 for one in self.twin.batches]
        self.log.offsets.restore_high_watermark(
            self.random.choice([end for end in ends if end >= self.log.high_watermark] or [self.log.log_end_offset])
        )

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def flush(self) -> None:
        self.log.flusher.flush(NOW_MS)

    def truncate(self) -> None:
        least = max(self.log.high_watermark, self.cleaned_to)
        offset = self.random.choice([*(one.base_offset for one in self.twin.batches), self.log.log_end_offset])
        if offset >= least:
            self.log.truncate_to(offset, NOW_MS)
            self.twin.truncate_to(offset)
            self._forget_ended()
            # A broker lowers the recovery point in the checkpoint; of an empty segment a flush syncs the name alone.
            self.log.flusher.flush(NOW_MS)
            path = self.log.segments[-1].log.path
            self.files.content(path).durable = self.files.read_bytes(path)
            self._copy_again()

    def delete_records(self) -> None:
        self.log.retention.advance_log_start_offset(
            self.random.randint(self.log.log_start_offset, self.log.high_watermark)
        )
        for path in self.log.retention.delete_due(NOW_MS):
            self.files.unlink(path)

    def delete_segments(self) -> None:
        bases = [segment.base_offset for segment in self.log.segments]
        count = sum(base <= self.log.high_watermark for base in bases[1:])
        if count:
            for path in self.log.retention.delete_segments(self.random.randint(1, count), NOW_MS):
                self.files.unlink(path)

    def compact(self) -> None:
        if "compact" in self.settings["cleanup_policy"]:
            self.log.flusher.flush(NOW_MS)
            if self.log.dirty_range(NOW_MS).restarts:
                self.log.offsets.mark_cleaned_to(None)
            if self.log.dirty_range(NOW_MS).cleanable_bytes:
                self.cleaned_to = max(self.cleaned_to, compact(self.files, self.log, NOW_MS + self.random.randrange(5)))
                assert self.cleaned_to <= self.log.last_stable_offset
                self._copy_again()

    def stop(self) -> None:
        self.log.close(clean=True)
        self._load(clean=True)

    def kill(self) -> None:
        self.log.close(clean=False)
        self._load(clean=False)

    def cut_power(self) -> None:
        self.log.close(clean=False)
        self.files.crash()
        self._load(clean=False)
        self.twin.truncate_to(self.log.log_end_offset)
        self._copy_again()

    def _load(self, *, clean: bool) -> None:
        log = self.log
        checkpoint = LogCheckpoint(log.log_start_offset, log.recovery_point, None, log.high_watermark)
        loader = FolderLoader(
            self.files, DIRECTORY, LogIdentity("orders", 0), log_config(**self.settings), checkpoint,
            producer_expiration_ms=DEFAULT_EXPIRATION_MS, now_ms=NOW_MS,
        )  # fmt: skip
        steps = loader.load(clean)
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                self.log = finished.value
                break
        self.log.offsets.restore_high_watermark(log.high_watermark)
        self.log.offsets.mark_cleaned_to(log.offsets.cleaned_offset)
        self._forget_ended()
        for path in loader.unlinkable:
            self.files.unlink(path)

    def _forget_ended(self) -> None:
        """A snapshot of producers does not hold transactions that have ended above the high watermark."""
        self.decided_to = max(self.decided_to, self.log.log_end_offset)

    # The follower

    def _copy_again(self) -> None:
        self.copy = open_log(MemoryFiles(), **self.settings)
        self.copy.truncate_fully_and_start_at(self.log.log_start_offset, NOW_MS)

    def follow(self) -> None:
        copy, log = self.copy, self.log
        if copy.log_end_offset < log.log_start_offset:
            self._copy_again()
            copy = self.copy
        while copy.log_end_offset < log.log_end_offset:
            piece = log.read(copy.log_end_offset, self.random.choice([1, 300, 2000]), log.log_end_offset)
            data = piece.read()
            piece.release()
            if not data:
                break
            if copy.log_start_offset == copy.log_end_offset:
                copy.begin_with(data, NOW_MS)
            copy.append_as_follower(data, NOW_MS)
        copy.offsets.restore_high_watermark(log.high_watermark)
        start = max(log.log_start_offset, copy.log_start_offset)
        if copy.log_end_offset == log.log_end_offset:
            got, expected = consumed(copy, start, 500), consumed(log, start, 500)
            stable = min(copy.last_stable_offset, log.last_stable_offset)
            assert {at: got[at] for at in got if at < stable} == {at: expected[at] for at in expected if at < stable}
            if not start and not self.cleaned_to:
                assert index_entries(copy) == index_entries(log)

    # Comparison

    def check(self) -> None:
        log, twin = self.log, self.twin
        assert log.log_end_offset == max(twin.end_offset, log.log_start_offset)
        stable = log.last_stable_offset
        assert stable in twin.stable_offsets(log.high_watermark, log.log_start_offset, self.decided_to), self.trace
        expected = twin.committed(log.log_start_offset, stable)
        got = consumed(log, log.log_start_offset, self.random.choice([1, 200, 100_000]))
        assert got.items() <= expected.items(), self.trace
        missing = expected.keys() - got.keys()
        assert all(offset < self.cleaned_to for offset in missing), self.trace
        last = {key: offset for offset, key in sorted(expected.items())}
        assert not missing & set(last.values()), self.trace
        if not self.cleaned_to and not log.log_start_offset:
            assert index_entries(log) == twin.aborted(), self.trace
            epochs = twin.coordinator_epochs()
            found = {one: entry.coordinator_epoch for one, entry in log.producers.entries.items()}
            assert {one: epoch for one, epoch in found.items() if epoch >= 0} == epochs, self.trace
            upper = self.random.randint(0, stable)
            lower = self.random.randint(0, upper)
            overlapping = [one for one in twin.aborted() if one.last_offset >= lower and one.first_offset < upper]
            assert log.aborted_transactions(lower, upper) == sorted(overlapping, key=lambda one: one.first_offset)
        for one in range(1, 5):
            entry = log.producers.entries.get(one)
            first = -1 if entry is None else entry.transaction_first_offset
            assert first < log.log_start_offset or first == twin.open_transactions().get(one, -1) or (
                first == twin.open_transactions(log.log_start_offset).get(one, -1)
            ), self.trace  # fmt: skip

    actions = {  # noqa: RUF012
        append_transactional: 30,
        append_plain: 8,
        end: 16,
        refuse_markers: 3,
        raise_high_watermark: 15,
        roll: 3,
        flush: 3,
        truncate: 2,
        delete_records: 1,
        delete_segments: 1,
        compact: 3,
        stop: 3,
        kill: 4,
        cut_power: 2,
        follow: 8,
    }
