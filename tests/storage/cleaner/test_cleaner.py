"""Whole compactions: any history of a topic, whatever it is compacted after, against a dict of last values."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batch import CorruptBatch, Record, RecordBatch, build_batch
from gregor.storage.cleaner import cleaner
from gregor.storage.cleaner.cleaner import CleaningJob, CleaningRun
from gregor.storage.fs.files import Files
from gregor.storage.log.contents import list_segments
from gregor.storage.producers.entry import ProducerEntry
from gregor.storage.producers.replay import replay_producers
from gregor.storage.producers.state import ProducerStates
from tests.storage.compacting import all_batches, all_records, compact, consumed_offsets, job_for, live_producers
from tests.storage.logs import DIRECTORY, NOW_MS, open_log
from tests.storage.memory_files import MemoryFiles
from tests.storage.twins import indexes_of

DAY_MS = 86_400_000
LIMITS: dict[str, Any] = {
    "segment_bytes": 700,
    "index_interval_bytes": 150,
    "cleanup_policy": frozenset(["compact"]),
    "delete_retention_ms": DAY_MS,
}


class History:
    """A log, and what was ever written to it."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.log = open_log(self.files, **LIMITS)
        self.written: list[Record] = []
        self.batch_of: dict[int, int] = {}
        self.gone_tombstones: set[int] = set()
        self.sequences: dict[int, int] = {}

    def append(self, pairs: list[tuple[bytes, bytes | None]], now_ms: int, codec: int, producer_id: int) -> None:
        fields: dict[str, Any] = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(pairs)
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        records = [
            Record(at, now_ms + (at * 7) % 3, key, value, [("n", b"%d" % at)]) for at, (key, value) in enumerate(pairs)
        ]
        info = self.log.append_as_leader(build_batch(records, compression=codec, **fields), 1, now_ms)
        for record in records:
            offset = info.first_offset + record.offset
            self.written.append(record._replace(offset=offset))
            self.batch_of[offset] = info.first_offset
        self.log.offsets.restore_high_watermark(self.log.log_end_offset)

    def compact(self, now_ms: int, **changes: Any) -> None:
        horizons = {batch.base_offset: horizon(batch) for batch in all_batches(self.log)}
        end = compact(self.files, self.log, now_ms, **changes)
        for record in self.written[:end]:
            horizon_ms = horizons.get(self.batch_of[record.offset])
            if record.value is None and horizon_ms is not None and horizon_ms <= now_ms:
                self.gone_tombstones.add(record.offset)
        for batch in all_batches(self.log):
            before = horizons[batch.base_offset]
            holds_tombstones = any(record.value is None for record in batch.records())
            if before is not None and batch.record_count:
                assert horizon(batch) == before, "it is set once"
            elif holds_tombstones and batch.last_offset < end:
                assert horizon(batch) == now_ms + DAY_MS
            elif not holds_tombstones:
                assert horizon(batch) is None
        self.check(end)

    def check(self, cleaned_offset: int) -> None:
        log = self.log
        last = {record.key: record.offset for record in self.written}
        last_below = {record.key: record.offset for record in self.written[:cleaned_offset]}
        allowed = [
            record
            for record in self.written
            if record.offset >= cleaned_offset
            or (last_below[record.key] == record.offset and record.offset not in self.gone_tombstones)
        ]
        # A map that became full may know of later records already than those that the run dealt with.
        present = {record.offset for record in all_records(log)}
        found = [
            record
            for record in allowed
            if record.offset >= cleaned_offset or last[record.key] == record.offset or record.offset in present
        ]
        assert all_records(log) == found
        assert log.log_end_offset == len(self.written)
        assert consumed_offsets(log) == [record.offset for record in found]
        assert all(batch.crc_ok() for batch in all_batches(log))
        for segment in log.segments[:-1]:
            data = segment.log.read(segment.size_bytes, 0)
            index, time_index = indexes_of(data, LIMITS["index_interval_bytes"], segment.base_offset)
            assert self.files.read_bytes(segment.offset_index.file.path) == index
            assert self.files.read_bytes(segment.time_index.file.path) == time_index
        self.check_producers()

    def check_producers(self) -> None:
        """A start that has lost every snapshot finds out from the log what each producer may send next."""
        copy = MemoryFiles()
        copy.make_directory(DIRECTORY)
        for entry in self.files.list_directory(DIRECTORY):
            if entry.name.endswith((".log", "index")):
                copy.create(f"{DIRECTORY}/{entry.name}").write(self.files.read_bytes(f"{DIRECTORY}/{entry.name}"))
        replayed = producers_told_of(copy)
        assert {one: entry.next_sequence for one, entry in replayed.items()} == {
            one: entry.next_sequence for one, entry in self.log.producers.entries.items()
        }


def horizon(batch: RecordBatch) -> int | None:
    return batch.base_timestamp if batch.has_delete_horizon else None


def producers_told_of(files: Files) -> dict[int, ProducerEntry]:
    """By the batches alone."""
    producers = ProducerStates(files, DIRECTORY)
    replay_producers(producers, list_segments(files, DIRECTORY), 0, 1 << 40)
    return producers.entries


keys = st.integers(0, 6).map(lambda number: b"key-%d" % number)
values = st.none() | st.binary(max_size=40)
appends = st.tuples(
    st.lists(st.tuples(keys, values), min_size=1, max_size=6), st.integers(0, 4), st.sampled_from([-1, -1, 7, 8])
)
steps = st.one_of(
    appends,
    appends,
    appends,
    appends,
    st.just("roll"),
    st.tuples(st.just("compact"), st.sampled_from([0, 1, DAY_MS, 2 * DAY_MS]), st.sampled_from([1 << 20, 24 * 13])),
)


@pytest.mark.slow
@given(st.lists(steps, min_size=5, max_size=40))
@settings(max_examples=25, deadline=None)
def test_any_history(story: list[Any]) -> None:
    history = History()
    now_ms = NOW_MS
    for step in [*story, "roll", ("compact", DAY_MS, 1 << 20), ("compact", DAY_MS, 1 << 20)]:
        if step == "roll":
            history.log.roll(now_ms)
        elif step[0] == "compact":
            now_ms += step[1]
            history.compact(now_ms, map_bytes=step[2])
        else:
            history.append(step[0], now_ms, step[1], step[2])


def story(count: int = 150, seed: int = 1) -> History:
    rng = random.Random(seed)
    history = History()
    for number in range(count):
        pairs = [
            (b"key-%d" % rng.randrange(20), None if rng.random() < 0.2 else rng.randbytes(rng.randrange(50)))
            for _ in range(rng.randrange(1, 5))
        ]
        history.append(pairs, NOW_MS + number, number % 5, rng.choice([-1, 7]))
    return history


@pytest.mark.slow
def test_a_small_map_takes_several_runs() -> None:
    history = story(80)
    history.log.roll(NOW_MS)
    ends = []
    while history.log.dirty_range(NOW_MS).cleanable_bytes and len(ends) < 200:
        history.compact(NOW_MS, map_bytes=24 * 19, map_load_factor=0.9)
        ends.append(history.log.offsets.cleaned_offset)
    assert ends == sorted(set(ends)), "each gets further"
    assert len(ends) > 3
    assert history.log.offsets.cleaned_offset == history.log.log_end_offset


def test_segments_come_together_again() -> None:
    history = story()
    history.log.roll(NOW_MS)
    before = history.log.segments_count
    history.compact(NOW_MS)
    history.append([(b"key-1", b"x")], NOW_MS, 0, -1)
    history.log.roll(NOW_MS)
    history.compact(NOW_MS)
    assert history.log.segments_count < before / 4
    assert sum(segment.size_bytes > LIMITS["segment_bytes"] for segment in history.log.segments) == 0


def test_only_live_producers_leave_empty_batches() -> None:
    history = story(50)
    history.append([(b"key-%d" % number, b"last") for number in range(20)], NOW_MS, 0, -1)
    history.log.roll(NOW_MS)
    history.compact(NOW_MS)
    empty = [batch for batch in all_batches(history.log) if not batch.record_count]
    assert [batch.producer_id for batch in empty] == [7]
    assert empty[0].last_sequence + 1 == history.log.producers.entries[7].next_sequence

    history.log.producers.expire(NOW_MS + 100 * DAY_MS)
    history.append([(b"key-1", b"later")], NOW_MS, 0, -1)
    history.log.roll(NOW_MS)
    history.compact(NOW_MS)
    assert [batch for batch in all_batches(history.log) if not batch.record_count] == []


def test_the_last_offset_of_a_run_is_kept() -> None:
    """Without the batch at the end, a follower or a starting broker could not determine the log end offset."""
    history = History()
    history.append([(b"a", None)], NOW_MS, 0, -1)
    history.log.roll(NOW_MS)
    compact(history.files, history.log, NOW_MS)
    history.log.offsets.mark_cleaned_to(None)
    compact(history.files, history.log, NOW_MS + DAY_MS)
    (batch,) = all_batches(history.log)
    assert (batch.record_count, batch.last_offset) == (0, 0)


def test_what_was_read_before_can_be_read_on() -> None:
    history = story()
    log = history.log
    log.roll(NOW_MS)
    first = log.read(0, 1 << 20, log.log_end_offset)
    bytes_before = first.read()
    compact(history.files, log, NOW_MS)
    assert first.read() == bytes_before
    first.release()


def test_everything_about_the_log_stays_but_its_segments() -> None:
    history = story()
    log = history.log
    log.roll(NOW_MS)
    log.offsets.restore_high_watermark(log.log_end_offset - 3)
    log.retention.advance_log_start_offset(5)
    before = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point, log.epochs.entries())
    producers = {one: (entry.batches, entry.epoch) for one, entry in log.producers.entries.items()}
    compact(history.files, log, NOW_MS)
    assert before == (
        log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point, log.epochs.entries()
    )  # fmt: skip
    assert producers == {one: (entry.batches, entry.epoch) for one, entry in log.producers.entries.items()}
    assert log.offsets.cleaned_offset is not None
    assert log.offsets.cleaned_offset <= log.high_watermark


def test_the_file_is_as_old_as_the_last_it_was_made_of() -> None:
    history = History()
    for modified_ms in (1000, 2000, 3000):
        history.files.now_ms = modified_ms
        history.append([(b"a", b"x")], NOW_MS, 0, -1)
        if modified_ms < 3000:
            history.log.roll(NOW_MS)
    history.files.now_ms = 9999
    compact(history.files, history.log, NOW_MS)
    assert [segment.log.modified_ms() for segment in history.log.segments] == [2000, 3000]


def run_of(history: History, **changes: Any) -> CleaningRun:
    return CleaningRun(history.files, job_for(history.log, NOW_MS, **changes), live_producers(history.log))


@pytest.mark.parametrize("position", [30, -1])
def test_damage_ends_the_run_and_leaves_nothing(position: int) -> None:
    history = story(60)
    history.log.roll(NOW_MS)
    path = history.log.segments[2].log.path
    history.files.content(path).data[position] ^= 0xFF
    names = sorted(entry.name for entry in history.files.list_directory(DIRECTORY))
    with pytest.raises(CorruptBatch):
        run_of(history).build_map()
    history.log.offsets.mark_cleaned_to(history.log.segments[3].base_offset)  # the damage is in the clean part
    run = run_of(history)
    run.build_map()
    finished = []
    with pytest.raises(CorruptBatch):
        for group in run.groups():
            finished.append(run.clean(group).base_offset)
    left = {entry.name for entry in history.files.list_directory(DIRECTORY)} - set(names)
    assert {int(name[:20]) for name in left} == set(finished)


def test_a_torn_segment_is_no_end() -> None:
    history = story(30)
    history.log.roll(NOW_MS)
    segment = history.log.segments[0]
    history.files.content(segment.log.path).data.pop()
    with pytest.raises(CorruptBatch, match="no whole batch"):
        run_of(history).build_map()


@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_directory"])
def test_a_failing_disk_leaves_nothing_half_done(operation: str) -> None:
    history = story(60)
    history.log.roll(NOW_MS)
    names = sorted(entry.name for entry in history.files.list_directory(DIRECTORY))
    run = run_of(history)
    run.build_map()
    history.files.fail(operation, after=1 if operation == "create" else 0)
    with pytest.raises(OSError, match="made to fail"):
        run.clean(run.groups()[-1])
    if operation != "sync_directory":
        assert sorted(entry.name for entry in history.files.list_directory(DIRECTORY)) == names


def test_bytes_are_charged_once_read_and_once_written() -> None:
    history = story(60)
    history.log.roll(NOW_MS)
    charged: list[int] = []
    job = job_for(history.log, NOW_MS)
    run = CleaningRun(history.files, job, {}, charged.append)
    run.build_map()
    source_bytes = sum(size for _, size in job.segments)
    assert source_bytes == run.map_bytes_read <= sum(charged)
    cleaned = [run.clean(group) for group in run.groups()]
    assert sum(charged) >= 2 * source_bytes + sum(one.size_bytes for one in cleaned)


def test_a_batch_larger_than_the_window() -> None:
    history = History()
    history.log.configure(open_log(MemoryFiles(), **{**LIMITS, "segment_bytes": 1 << 20}).config)
    for pairs in ([(b"a", bytes(200_000)), (b"b", b"x")], [(b"a", b"new")]):
        history.log.append_as_leader(build_batch(pairs, timestamp_ms=NOW_MS), 1, NOW_MS, from_client=False)
    history.log.offsets.restore_high_watermark(3)
    history.log.roll(NOW_MS)
    compact(history.files, history.log, NOW_MS)
    assert [(record.key, record.offset) for record in all_records(history.log)] == [(b"b", 1), (b"a", 2)]


def test_a_segment_grows_no_further_than_index_entries_can_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delete horizon makes a batch larger: where there is no room for that, the batch stays as it is."""
    history = History()
    for number in range(12):
        history.append([(b"key-%d" % number, None)], NOW_MS, 0, -1)
    history.log.roll(NOW_MS)
    size_bytes = history.log.size_bytes
    limit = size_bytes + 25
    monkeypatch.setattr(cleaner, "MAX_SEGMENT_BYTES", limit)
    for _ in range(2):
        compact(history.files, history.log, NOW_MS, segment_bytes=limit)
        history.log.offsets.mark_cleaned_to(0)
        assert size_bytes < history.log.segments[0].size_bytes == history.log.size_bytes <= limit
        assert 0 < sum(horizon(batch) is not None for batch in all_batches(history.log)) < 12
        assert consumed_offsets(history.log) == list(range(12))
    monkeypatch.undo()
    compact(history.files, history.log, NOW_MS, segment_bytes=limit)
    assert all(horizon(batch) == NOW_MS + DAY_MS for batch in all_batches(history.log))


def test_a_job_survives_json() -> None:
    job = job_for(story(20).log, NOW_MS)
    assert CleaningJob.from_fields(json.loads(json.dumps(job._asdict()))) == job


def test_a_run_over_nothing() -> None:
    history = History()
    run = run_of(history)
    run.build_map()
    assert run.groups() == []
    assert run.end_offset == 0


def test_a_map_that_does_not_hold_one_batch_is_an_error() -> None:
    history = History()
    history.append([(b"key-%d" % number, b"x") for number in range(6)], NOW_MS, 0, -1)
    history.log.roll(NOW_MS)
    run = run_of(history, map_bytes=24 * 5)
    run.build_map()
    with pytest.raises(ValueError, match="a single batch has more keys than the 4 that"):
        run.groups()
