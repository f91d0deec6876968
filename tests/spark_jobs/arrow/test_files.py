"""Segment files read while the real storage compacts, truncates and deletes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.records.batch import Record, build_batch
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow import segments
from gregor.spark_jobs.arrow.decoder import AbortedTransactions, Decoder
from gregor.spark_jobs.arrow.files import FilesReader, LeaderAuthority
from gregor.spark_jobs.arrow.local import LocalLog
from gregor.spark_jobs.arrow.plan import CorruptRecords, Filters, PartitionRange, ReadPlan
from gregor.spark_jobs.arrow.rows import RowBuilder
from gregor.spark_jobs.arrow.segments import PartitionFiles, Segment, Unreadable
from gregor.spark_jobs.client.cluster import Cluster
from gregor.storage.fs.files import OsFiles
from gregor.storage.log.log import Log
from tests.spark_jobs.arrow.fake_leader import SETTINGS, FakeClock, FakeLeader
from tests.storage.compacting import all_batches, all_records, compact
from tests.storage.logs import append_marker, open_log

NOW_MS = 1_000_000
Rows = list[tuple[int, bytes | None, bytes | None]]


class Served:
    """A log in a folder, and the broker that leads it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.files = OsFiles()
        self.path = str(folder / "orders-0")
        usual = {"segment_bytes": 2000, "index_interval_bytes": 200}
        self.log: Log = open_log(self.files, self.path, now_ms=NOW_MS, **{**usual, **settings})
        self.leader = FakeLeader()
        self.source = random.Random(1)

    def append(self, batches: int, keys: int = 50, value: bytes = b"v") -> None:
        for _ in range(batches):
            offset = self.log.log_end_offset
            records = [
                Record(at, offset + at, b"k%d" % self.source.randrange(keys), b"%s%d" % (value, offset + at), [])
                for at in range(self.source.randint(1, 5))
            ]
            self.log.append_as_leader(build_batch(records), self.leader.epoch, NOW_MS)
        self.commit()

    def commit(self) -> None:
        self.log.offsets.restore_high_watermark(self.log.log_end_offset)
        self.leader.first, self.leader.end = self.log.log_start_offset, self.log.log_end_offset

    def compact(self) -> None:
        self.log.roll(NOW_MS)
        compact(self.files, self.log, NOW_MS)

    def delete(self, segments_: int) -> None:
        for path in self.log.retention.delete_segments(segments_, NOW_MS):
            self.files.unlink(path)
        self.commit()

    def rows(self) -> Rows:
        return [(one.offset, one.key, one.value) for one in all_records(self.log)]

    def read(self, start: int, end: int, **options: Any) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        plan = ReadPlan(SETTINGS, PartitionRange("t", 0, start, end), "files", **options)
        aborted = AbortedTransactions() if plan.read_committed else None
        rows = RowBuilder("t", 0, ("offset", "key", "value"), False, 100)
        decoder = Decoder(rows, start, end, aborted=aborted, filters=plan.filters)
        log = LocalLog(self.path, 1, 5, bytes(16))
        with Cluster(SETTINGS, FakeClock(), self.leader.connect) as cluster:
            leader = LeaderAuthority(cluster, TopicPartition("t", 0), log, plan.read_committed)
            for part in FilesReader(PartitionFiles(self.path), leader, plan, decoder, aborted).read():
                yield from zip(*(column.to_pylist() for column in part.columns), strict=True)


@pytest.fixture(autouse=True)
def windows_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MIN_WINDOW_BYTES", 300)
    monkeypatch.setattr(segments, "MAX_WINDOW_BYTES", 600)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    one = Served(tmp_path)
    yield one
    one.log.close(clean=True)


def test_every_range_of_many_segments(served: Served) -> None:
    served.append(60)
    rows = served.rows()
    assert served.log.segments_count > 3
    for start in range(0, len(rows), 7):
        for end in (start + 1, start + 30, len(rows)):
            assert list(served.read(start, min(end, len(rows)))) == rows[start:end]


def test_batch_larger_than_a_window_is_read_whole(served: Served) -> None:
    served.log.append_as_leader(build_batch([(b"k", bytes(1500))]), 5, NOW_MS)
    served.append(3)
    assert list(served.read(0, served.leader.end)) == served.rows()


def test_compacted_log_has_gaps_and_ends(served: Served) -> None:
    served.append(60, keys=5)
    served.compact()
    rows = served.rows()
    assert len(rows) <= 6 < served.leader.end
    for start in range(0, served.leader.end, 11):
        assert list(served.read(start, served.leader.end)) == [row for row in rows if row[0] >= start]
    assert list(served.read(0, rows[-1][0] + 1)) == rows


@pytest.mark.parametrize("check", range(1, 14, 3))
def test_compaction_under_the_reader_loses_no_last_value(served: Served, check: int) -> None:
    served.append(60, keys=8)
    before, end = served.rows(), served.leader.end
    served.leader.checks = [lambda: None] * check + [served.compact]
    found = list(served.read(0, end))
    assert not served.leader.checks
    offsets = [row[0] for row in found]
    assert offsets == sorted(set(offsets))
    assert set(served.rows()) <= set(found) <= set(before)
    # Every window that was read before the compaction is complete.
    assert found[: before.index(found[-1]) + 1] == found


def test_compaction_at_every_check(served: Served) -> None:
    served.append(40, keys=8)
    end = served.leader.end

    def change() -> None:
        served.append(4, keys=8)
        served.compact()

    served.leader.checks = [change] * 40
    found = list(served.read(0, end))
    last = {key: row for row in served.rows() for key in [row[1]]}
    assert {row[1] for row in found} <= set(last)
    assert [row[0] for row in found] == sorted({row[0] for row in found})
    assert {row for row in last.values() if row[0] < end} <= set(found)


@pytest.mark.parametrize("check", range(1, 10, 2))
def test_segments_deleted_under_the_reader_end_it_with_a_reason(served: Served, check: int) -> None:
    served.append(60)
    rows, count = served.rows(), served.log.segments_count
    served.leader.checks = [lambda: None] * check + [lambda: served.delete(count - 1)]
    found = []
    with pytest.raises(Unreadable, match="has no segment with offset"):
        for row in served.read(0, len(rows)):
            found.append(row)
    assert found == rows[: len(found)]


def test_log_that_starts_above_the_range_is_left_to_a_fetch(served: Served) -> None:
    served.append(60)
    served.log.retention.advance_log_start_offset(5)
    served.commit()
    with pytest.raises(Unreadable, match="starts at offset 5"):
        list(served.read(4, 20))
    assert [row[0] for row in served.read(5, 20)] == list(range(5, 20))


@pytest.mark.parametrize("check", range(2, 12, 3))
def test_no_truncated_record_is_returned(served: Served, check: int) -> None:
    """An unclean election: the broker follows, truncates, and leads again with other records at the same offsets."""
    served.append(60)
    rows = served.rows()

    def lose() -> None:
        served.log.truncate_to(10)
        served.leader.epoch = 7
        served.append(60, value=b"other")

    served.leader.checks = [lambda: None] * check + [lose]
    found = []
    with pytest.raises(Unreadable, match="leads t-0 since epoch 7, no more broker 1 in epoch 5"):
        for row in served.read(0, len(rows)):
            found.append(row)
    assert found == rows[: len(found)]
    assert set(found[10:]).isdisjoint(served.rows())


def test_records_above_the_high_watermark_are_not_read(served: Served) -> None:
    served.append(20)
    served.leader.end = 15
    with pytest.raises(Unreadable, match="has the high watermark 15, below the end of the range"):
        list(served.read(0, 20))


def test_records_above_the_last_stable_offset_are_not_read_with_read_committed(served: Served) -> None:
    served.append(20)
    rows = served.rows()
    served.leader.stable = 15
    with pytest.raises(Unreadable, match="t-0 has the last stable offset 15, below the end of the range"):
        list(served.read(0, 20, read_committed=True))
    assert list(served.read(0, 15, read_committed=True)) == rows[:15]
    assert list(served.read(0, 20)) == rows[:20]


def test_aborted_transactions_are_left_out(served: Served) -> None:
    expected = []
    for number in range(30):
        producer = number % 3
        start = served.log.log_end_offset
        served.append(2)
        expected += range(start, served.log.log_end_offset)
        start = served.log.log_end_offset
        data = build_batch([(b"k", b"v")] * 2, producer_id=10 + producer, producer_epoch=0, transactional=True,
                           base_sequence=(number // 3) * 2)  # fmt: skip
        served.log.append_as_leader(data, 5, NOW_MS)
        commit = number % 4 == 0
        expected += [start, start + 1] if commit else []
        append_marker(served.log, EndTransaction(10 + producer, 0, 0, commit), 5)
    served.commit()
    assert served.log.segments_count > 1
    assert [row[0] for row in served.read(0, served.leader.end, read_committed=True)] == expected
    start = expected[17]
    assert [row[0] for row in served.read(start, served.leader.end, read_committed=True)] == expected[17:]
    assert len(list(served.read(0, served.leader.end))) == len(served.rows()) - 30


def test_transaction_index_that_cannot_be_read_is_not_one_without_transactions(served: Served) -> None:
    data = build_batch([(b"k", b"v")] * 2, producer_id=9, producer_epoch=0, transactional=True, base_sequence=0)
    served.log.append_as_leader(data, 5, NOW_MS)
    append_marker(served.log, EndTransaction(9, 0, 0, False), 5)
    served.commit()
    assert list(served.read(0, 3, read_committed=True)) == []
    (path,) = Path(served.path).glob("*.txnindex")
    path.unlink()
    path.mkdir()  # for the user root, who may read each file
    with pytest.raises(Unreadable, match=r"\.txnindex cannot be read: Is a directory"):
        list(served.read(0, 3, read_committed=True))


def test_abort_marker_that_is_compacted_under_the_reader_leaves_no_transaction_open(served: Served) -> None:
    """The list of aborted transactions was read before, and a later transaction of the producer is committed."""

    def transaction(sequence: int, commit: bool) -> list[int]:
        start = served.log.log_end_offset
        data = build_batch([(b"t%d" % sequence, b"v")] * 2, producer_id=9, producer_epoch=0, transactional=True,
                           base_sequence=sequence)  # fmt: skip
        served.log.append_as_leader(data, 5, NOW_MS)
        append_marker(served.log, EndTransaction(9, 0, 0, commit), 5)
        return [start, start + 1]

    served.append(5)
    served.log.roll(NOW_MS)
    aborted = transaction(0, commit=False)
    served.log.roll(NOW_MS)
    committed = transaction(2, commit=True)
    served.append(5)

    def compact_away() -> None:
        served.log.roll(NOW_MS)
        for now_ms in (NOW_MS, NOW_MS, NOW_MS + 10**9):  # the records, the delete horizon, the marker
            compact(served.files, served.log, now_ms, first_dirty_offset=0)
        assert all(batch.base_offset != aborted[-1] + 1 for batch in all_batches(served.log))

    served.leader.checks = [lambda: None, compact_away]
    found = {row[0] for row in served.read(0, served.leader.end, read_committed=True)}
    assert committed[-1] in found
    assert not set(aborted) & found


def test_time_indexes_prune_what_is_older(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.append(60)
    rows = served.rows()
    assert list(served.read(0, len(rows), filters=Filters(min_timestamp_ms=100))) == rows[100:]
    files = PartitionFiles(served.path)
    assert 60 < files.first_offset_since(100, 0, len(rows)) <= 100
    assert files.first_offset_since(0, 3, len(rows)) == 3


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_segment_without_a_time_index_is_read(served: Served, missing: int) -> None:
    """Its records may be later than those behind it: producers set the timestamps."""
    times = []
    for timestamp_ms, count in ((5000, 12), (1000, 40), (6000, 5)):
        for _ in range(count):
            served.log.append_as_leader(build_batch([Record(0, timestamp_ms, b"k", b"v", [])]), 5, NOW_MS)
        times += [timestamp_ms] * count
        served.log.roll(NOW_MS)
    served.commit()
    sorted(Path(served.path).glob("*.timeindex"))[missing].unlink()
    for start in (0, 3, 13, 50):
        for since in (1000, 5000, 6000):
            found = [row[0] for row in served.read(start, len(times), filters=Filters(min_timestamp_ms=since))]
            assert found == [offset for offset in range(start, len(times)) if times[offset] >= since]


def test_list_with_a_swap_is_not_used(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_LISTINGS", 3)
    served.append(5)
    (Path(served.path) / f"{0:020d}.log.swap").touch()
    with pytest.raises(Unreadable, match="are being replaced; after a crash, start their broker once"):
        PartitionFiles(served.path).listing()


def test_folder_of_another_topic_is_not_read(served: Served, tmp_path: Path) -> None:
    served.append(5)
    (Path(served.path) / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    with pytest.raises(Unreadable, match="is not of the topic with the id"):
        PartitionFiles(served.path, b"x" * 16).listing()
    files = PartitionFiles(served.path)
    Path(served.path).rename(tmp_path / "orders-0.x-delete")
    Path(served.path).mkdir()
    with pytest.raises(Unreadable, match="has been replaced by another folder"):
        files.listing()


def test_indexes_that_are_missing_wrong_or_zeros_only_cost_time(served: Served) -> None:
    served.append(60)
    rows = served.rows()
    for content in (None, b"", bytes(64), b"\x7f" * 64, b"\0\0\0\1\0\0\0\5" * 8):
        for path in Path(served.path).glob("*.index"):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
        assert list(served.read(57, 111)) == rows[57:111]


def test_zeros_behind_the_last_batch_are_the_end(served: Served) -> None:
    served.append(3)
    served.log.close(clean=True)
    (path,) = Path(served.path).glob("*.log")
    with path.open("ab") as file:
        file.write(bytes(5000))
    with Segment(served.path, 0) as segment:
        assert b"".join(map(bytes, segment.windows(0))) == path.read_bytes()[:-5000]


@pytest.mark.parametrize("length", [0, 1, -5, 10**6, 2**31 - 1])
def test_damaged_length_is_no_end_of_a_segment(served: Served, length: int) -> None:
    served.append(60)
    rows = served.rows()
    path = min(Path(served.path).glob("*.log"))
    data = bytearray(path.read_bytes())
    second = int.from_bytes(data[8:12]) + 12
    data[second + 8 : second + 12] = length.to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    found = []
    with pytest.raises((Unreadable, CorruptRecords)):
        for row in served.read(0, len(rows)):
            found.append(row)
    assert found == rows[: len(found)]
