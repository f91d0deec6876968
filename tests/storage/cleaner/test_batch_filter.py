"""The remains of one batch after compaction: contents, header fields, delete horizons."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol.records.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    CorruptBatch,
    Record,
    RecordBatch,
    build_batch,
)
from gregor.protocol.records.compression import ZSTD
from gregor.storage.cleaner.batch_filter import (
    Filtered,
    empty_batch,
    filter_batch,
    plain_records,
    with_delete_horizon,
)
from gregor.storage.cleaner.offset_map import OffsetMap
from tests.storage.logs import NOW_MS, patched

DAY_MS = 86_400_000


def known(**last_offsets: int) -> OffsetMap:
    latest = OffsetMap(1 << 16, 0.9, 100)
    for key, offset in last_offsets.items():
        latest.put(key.encode(), offset)
    latest.latest_offset = 1000
    return latest


def batch_of(*pairs: tuple[str | None, str | None], base_offset: int = 10, **fields: Any) -> RecordBatch:
    """Records a second apart, latest in the middle."""
    times = [NOW_MS + 1000 * min(index, 2) for index in range(len(pairs))]
    records = [
        Record(base_offset + index, times[index], key and key.encode(), value and value.encode(), [("h", b"1")])  # type: ignore[arg-type]
        for index, (key, value) in enumerate(pairs)
    ]
    return RecordBatch(build_batch(records, leader_epoch=7, **fields))


def filtered(batch: RecordBatch, latest: OffsetMap, *, now_ms: int = NOW_MS, retain_empty: bool = False) -> Filtered:
    return filter_batch(batch, latest, now_ms=now_ms, delete_retention_ms=DAY_MS, retain_empty=retain_empty)


def left(result: Filtered) -> RecordBatch:
    assert result.data is not None
    batch = RecordBatch(bytes(result.data))
    assert batch.crc_ok()
    assert batch.size_bytes == len(result.data)
    assert batch.max_timestamp == result.max_timestamp
    return batch


def test_a_batch_that_the_broker_would_not_decompress_is_read() -> None:
    large = RecordBatch(build_batch([(b"k", bytes(DEFAULT_MAX_DECOMPRESSED_BYTES))], compression=ZSTD))
    assert len(plain_records(large)) > DEFAULT_MAX_DECOMPRESSED_BYTES


def test_a_batch_of_last_records_is_not_touched() -> None:
    batch = batch_of(("a", "1"), ("b", "2"))
    result = filtered(batch, known(a=10, b=11))
    assert bytes(result.data or b"") == bytes(batch.memory())
    assert (result.records_read, result.records_kept) == (2, 2)


@pytest.mark.parametrize("codec", range(5))
def test_what_stays_keeps_offset_time_headers_and_the_batch_its_place(codec: int) -> None:
    batch = batch_of(
        ("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"),
        compression=codec, producer_id=5, producer_epoch=2, base_sequence=40,
    )  # fmt: skip
    result = left(filtered(batch, known(a=12, b=11, c=99)))
    before = {record.offset: record for record in batch.records()}
    assert list(result.records()) == [before[11], before[12]]
    assert (result.base_offset, result.last_offset, result.leader_epoch) == (10, 13, 7)
    assert (result.producer_id, result.producer_epoch, result.base_sequence, result.last_sequence) == (5, 2, 40, 43)
    assert result.compression == codec
    # As Kafka writes it: the base timestamp is the first record's, not the one of the batch before.
    assert (result.base_timestamp, result.max_timestamp) == (NOW_MS + 1000, NOW_MS + 2000)
    assert not result.has_delete_horizon


def test_max_timestamp_is_that_of_what_stays() -> None:
    result = left(filtered(batch_of(("a", "1"), ("b", "2"), ("c", "3")), known(a=10, b=99, c=99)))
    assert (result.base_timestamp, result.max_timestamp, result.last_offset) == (NOW_MS, NOW_MS, 12)


def test_append_time_stays_the_time_of_all_records() -> None:
    batch = RecordBatch(
        build_batch([(b"a", b"1"), (b"b", None)], base_offset=10, timestamp_ms=NOW_MS, timestamp_type=1)
    )
    result = left(filtered(batch, known(a=99, b=11)))
    assert result.timestamp_type == 1
    assert result.max_timestamp == NOW_MS
    assert [(record.offset, record.timestamp) for record in result.records()] == [(11, NOW_MS)]


def test_records_without_a_key_go() -> None:
    assert [record.offset for record in left(filtered(batch_of((None, "1"), ("b", "2")), known(b=11))).records()] == [
        11
    ]


def test_records_behind_what_is_known_stay() -> None:
    latest = known(a=10)
    latest.latest_offset = 11
    result = left(filtered(batch_of(("b", "1"), (None, "2"), (None, "3"), ("z", "4"), base_offset=10), latest))
    assert [record.offset for record in result.records()] == [10, 12, 13]  # of b nothing is known, so it is the last


def test_an_unknown_key_stays() -> None:
    """The clean part of a log holds keys that the dirty part does not."""
    batch = batch_of(("old", "1"))
    assert bytes(filtered(batch, known()).data or b"") == bytes(batch.memory())


def test_tombstones_get_a_delete_horizon_once_and_go_when_it_has_passed() -> None:
    latest = known(a=10, b=11)
    batch = batch_of(("a", None), ("b", "2"))
    first = left(filtered(batch, latest))
    assert first.has_delete_horizon
    assert first.base_timestamp == NOW_MS + DAY_MS
    assert list(first.records()) == list(batch.records())

    second = filtered(first, latest, now_ms=NOW_MS + DAY_MS - 1)
    assert bytes(second.data or b"") == bytes(first.memory()), "the horizon is not put off"

    third = left(filtered(first, latest, now_ms=NOW_MS + DAY_MS))
    assert [record.key for record in third.records()] == [b"b"]
    assert list(third.records()) == list(batch.records())[1:]
    assert third.has_delete_horizon, "as in Kafka, the batch keeps its horizon"
    assert third.base_timestamp == NOW_MS + DAY_MS


def test_a_horizon_beyond_all_time() -> None:
    result = filter_batch(
        batch_of(("a", None)), known(a=10), now_ms=NOW_MS, delete_retention_ms=2**63 - 1, retain_empty=False
    )
    horizon = left(result)
    assert horizon.base_timestamp == 2**63 - 1
    assert [record.timestamp for record in horizon.records()] == [NOW_MS]


@pytest.mark.parametrize("codec", range(5))
def test_an_empty_batch_remembers_the_producer(codec: int) -> None:
    batch = batch_of(("a", "1"), ("a", "2"), producer_id=5, producer_epoch=2, base_sequence=40, compression=codec)
    assert filtered(batch, known(a=99)).data is None
    empty = left(filtered(batch, known(a=99), retain_empty=True))
    assert (empty.record_count, empty.size_bytes, empty.compression) == (0, 61, 0)
    assert (empty.base_offset, empty.last_offset, empty.leader_epoch) == (10, 11, 7)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence, empty.last_sequence) == (5, 2, 40, 41)
    assert (empty.base_timestamp, empty.max_timestamp) == (-1, batch.max_timestamp)
    again = left(filtered(empty, known(a=99), retain_empty=True))
    assert bytes(again.memory()) == bytes(empty.memory())
    assert filtered(empty, known(a=99)).data is None


def test_a_marker_may_get_a_horizon() -> None:
    marker = RecordBatch(
        build_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=4, timestamp_ms=NOW_MS, producer_id=5,
                    producer_epoch=0, transactional=True, control=True)
    )  # fmt: skip
    result = left(with_delete_horizon(marker, NOW_MS + 5))
    assert result.has_delete_horizon
    assert result.is_control
    assert result.is_transactional
    assert result.base_timestamp == NOW_MS + 5
    assert list(result.records()) == list(marker.records())
    assert left(Filtered(empty_batch(marker), NOW_MS, 1, 0)).is_control


def test_timestamps_further_apart_than_64_bits() -> None:
    """Their deltas overflow; what stays has the time that it had."""
    far = [Record(0, 2**63 - 1, b"a", b"1", []), Record(1, -(2**63), b"b", b"2", []), Record(2, 5, b"c", b"3", [])]
    batch = RecordBatch(build_batch(far))
    result = left(filtered(batch, known(a=99)))
    assert list(result.records()) == far[1:]
    assert result.max_timestamp == 5
    assert list(left(filtered(batch, known(b=99))).records()) == [far[0], far[2]]


def test_an_offset_outside_of_the_batch_is_damage() -> None:
    short = patched(batch_of(("a", "1"), ("b", "2")).memory(), ">i", 23, 0)  # last offset delta
    with pytest.raises(CorruptBatch, match="from 10 to 10"):
        filtered(RecordBatch(short), known(a=99))


def test_damage_is_not_written_anew() -> None:
    damaged = bytearray(batch_of(("a", "1"), ("b", "2")).memory())
    damaged[-3] ^= 1
    with pytest.raises(CorruptBatch, match="checksum at offset 10"):
        filtered(RecordBatch(damaged), known(a=99))
