"""Records on their way into topics that do not store them unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.config.topic import LogConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import Record, RecordBatch, build_batch
from gregor.protocol.records.compression import CODEC_NAMES
from gregor.protocol.records.control import end_marker
from gregor.protocol.turns import ITEMS_PER_STEP, run_all
from gregor.storage.log.prepare import (
    LISTED_ERRORS,
    QUICK_RECORDS,
    NeedsPreparation,
    PreparedBatch,
    prepare,
    prepare_quickly,
)
from gregor.storage.log.validate import RefusedRecords
from tests.storage.logs import NOW_MS, batch, log_config, open_log, patched
from tests.storage.memory_files import MemoryFiles

COMPACT = log_config(cleanup_policy=frozenset({"compact"}))
DEEP = log_config(gregor_deep_validation=True)


def records(count: int, *, start_ms: int = NOW_MS, size: int = 30) -> list[Record]:
    return [Record(n, start_ms + n, b"key%d" % n, b"v" * size, [("h", b"x")]) for n in range(count)]


def prepared(data: bytes | bytearray, config: LogConfig, **options: Any) -> RecordBatch:
    done = run_all(prepare(data, config, NOW_MS, **options))
    assert isinstance(done, PreparedBatch)
    found = RecordBatch(done)
    assert found.crc_ok()
    assert found.size_bytes == len(done)
    return found


def refused(data: bytes | bytearray, config: LogConfig) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        run_all(prepare(data, config, NOW_MS))
    return raised.value


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", range(5))
def test_every_codec_to_every_other(source: int, target: int) -> None:
    name = "uncompressed" if target == 0 else CODEC_NAMES[target]
    sent = build_batch(
        records(50), compression=source, producer_id=7, producer_epoch=2, base_sequence=40, timestamp_ms=NOW_MS
    )
    found = prepared(sent, log_config(compression_type=name))
    assert found.compression == target
    assert list(found.records()) == records(50)
    kept = ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch",
            "base_sequence", "record_count")  # fmt: skip
    assert [getattr(found, field) for field in kept] == [getattr(RecordBatch(sent), field) for field in kept]
    if source == target:
        assert found.memory() == sent


@pytest.mark.parametrize(
    ("name", "key", "low", "high"),
    [("gzip", "gzip", 1, 9), ("zstd", "zstd", -7, 19), ("lz4", "lz4", 9, 12)],
)
def test_levels(name: str, key: str, low: int, high: int) -> None:
    sent = build_batch([(b"%d" % (n * 7919), b"%d" % (n * 104729)) for n in range(3000)], timestamp_ms=NOW_MS)
    sizes = [
        prepared(sent, log_config(compression_type=name, **{f"compression_{key}_level": level})).size_bytes
        for level in (low, high)
    ]
    assert sizes[0] > sizes[1]


def test_lz4_levels_that_the_library_does_not_have() -> None:
    sent = build_batch(records(20))
    for level in (1, 2, 17):
        found = prepared(sent, log_config(compression_type="lz4", compression_lz4_level=level))
        assert list(found.records()) == records(20)


def test_size_is_checked_again_after_compression() -> None:
    sent = build_batch(records(200), compression=4)
    config = log_config(compression_type="uncompressed", max_message_bytes=len(sent))
    assert refused(sent, config).code is ErrorCode.MESSAGE_TOO_LARGE
    assert prepared(sent, log_config(max_message_bytes=len(sent))).size_bytes == len(sent)


def test_control_batches_stay_uncompressed() -> None:
    sent = end_marker(7, 0, 1, True, NOW_MS)
    assert prepared(sent, log_config(compression_type="gzip"), from_client=False).memory() == sent


def test_what_cannot_be_decompressed_is_refused() -> None:
    sent = patched(build_batch(records(3)), ">h", 21, 1)
    for config in (log_config(compression_type="zstd"), COMPACT, DEEP):
        assert refused(sent, config).code is ErrorCode.INVALID_RECORD


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.storage.log.prepare.DEFAULT_MAX_DECOMPRESSED_BYTES", 1 << 20)
    sent = build_batch([(b"k", bytes(1 << 20))], compression=4, timestamp_ms=NOW_MS)
    for config in (log_config(compression_type="gzip"), DEEP):
        assert "more than" in str(refused(sent, config))


@pytest.mark.parametrize("codec", [0, 2])
def test_each_record_without_a_key_is_told(codec: int) -> None:
    pairs = [(None if n in (1, 4) else b"k", b"v") for n in range(6)]
    error = refused(build_batch(pairs, timestamp_ms=NOW_MS, compression=codec), COMPACT)
    assert isinstance(error, RefusedRecords)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 4]
    assert all("without a key" in text for _, text in error.record_errors)


def test_each_record_out_of_bounds_is_told() -> None:
    config = log_config(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=10)
    times = [0, -1000, -1001, 10, 11]
    sent = build_batch([Record(n, NOW_MS + late, b"k", b"v", []) for n, late in enumerate(times)])
    error = refused(sent, config)
    assert isinstance(error, RefusedRecords)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [2, 4]
    assert str(NOW_MS - 1001) in error.record_errors[0][1]


def test_bad_timestamps_give_the_code_when_keys_are_missing_too() -> None:
    config = log_config(cleanup_policy=frozenset({"compact"}), message_timestamp_before_max_ms=1000)
    sent = build_batch([Record(0, NOW_MS, None, b"", []), Record(1, 5, b"k", b"", [])])
    error = refused(sent, config)
    assert isinstance(error, RefusedRecords)
    assert (error.code, len(error.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, 2)


def test_not_all_of_many_errors_are_told() -> None:
    error = refused(build_batch([(None, b"v")] * 1000, timestamp_ms=NOW_MS), COMPACT)
    assert isinstance(error, RefusedRecords)
    assert len(error.record_errors) == LISTED_ERRORS
    assert "1000" in str(error)


def test_append_time_bit_is_taken_off() -> None:
    """A batch with this bit has one timestamp, its max timestamp; CreateTime topics keep it and the records' own."""
    sent = build_batch(records(3))
    found = prepared(patched(sent, ">h", 21, 8), log_config())
    assert (found.timestamp_type, found.max_timestamp) == (0, NOW_MS + 2)
    assert found.memory() == sent
    error = refused(patched(sent, ">h", 21, 8), log_config(message_timestamp_type="LogAppendTime"))
    assert isinstance(error, RefusedRecords)
    assert (error.code, len(error.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, 3)


def test_max_timestamp_is_made_true_where_records_are_looked_at() -> None:
    sent = build_batch(records(3))
    for wrong in (NOW_MS, NOW_MS + 10**10):
        lying = patched(sent, ">q", 35, wrong)
        for config in (COMPACT, DEEP):
            assert prepared(lying, config).memory() == sent
    assert prepared(patched(sent, ">q", 35, NOW_MS), log_config()).max_timestamp == NOW_MS  # records not read


def test_deep_validation() -> None:
    good = build_batch(records(4))
    assert prepared(good, DEEP).memory() == good
    twice = build_batch([Record(0, NOW_MS, b"k", b"v", []), Record(3, NOW_MS, b"k", b"v", [])])
    error = refused(patched(twice, ">i", 23, 1), DEEP)
    assert isinstance(error, RefusedRecords)
    assert [index for index, _ in error.record_errors] == [1]
    bad_counts = [patched(patched(good, ">i", 57, count), ">i", 23, count - 1) for count in (3, 5)]
    # The first value's length, one more than it is: the record's own length is right.
    bad_value = patched(good, ">b", 61 + 1 + 3 + 1 + 4, 2 * 31)
    for damaged in (*bad_counts, bad_value):
        assert refused(damaged, DEEP).code is ErrorCode.INVALID_RECORD
        prepared(damaged, log_config())


@pytest.mark.parametrize("codec", [0, 4])
def test_more_records_than_bytes_are_believed_only_if_they_are_there(codec: int) -> None:
    log = open_log(MemoryFiles())
    sent = build_batch([(b"k", b"v")], timestamp_ms=NOW_MS, compression=codec)
    for count in (len(sent) + 1, 2**31 - 1):
        wrong = patched(patched(sent, ">i", 23, count - 1), ">i", 57, count)
        error = refused(wrong, log.config)
        assert error.code is ErrorCode.INVALID_RECORD
        assert f"within record 1 of {count}" in str(error)
        with pytest.raises(NeedsPreparation if count > QUICK_RECORDS else KafkaError):
            log.append_as_leader(wrong, 0, NOW_MS)
    assert log.log_end_offset == 0
    alike = build_batch([(b"", b"")] * 5000, timestamp_ms=NOW_MS, compression=4)
    assert len(alike) < 5000
    assert log.append_as_leader(run_all(prepare(alike, log.config, NOW_MS)), 0, NOW_MS).last_offset == 4999


def test_the_broker_itself_is_trusted_with_keys() -> None:
    sent = build_batch([(None, b"v")], timestamp_ms=NOW_MS)
    assert prepared(sent, COMPACT, from_client=False).memory() == sent


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_other_error_comes_out(data: st.DataObject) -> None:
    codec = data.draw(st.integers(0, 4))
    sent = build_batch(records(data.draw(st.integers(1, 5))), compression=codec)
    for _ in range(data.draw(st.integers(0, 4))):
        sent[data.draw(st.integers(21, len(sent) - 1))] = data.draw(st.integers(0, 255))
    sent = patched(sent, ">b", 16, 2)
    config = log_config(
        compression_type=data.draw(st.sampled_from(["producer", "gzip", "lz4", "uncompressed"])),
        gregor_deep_validation=data.draw(st.booleans()),
        cleanup_policy=data.draw(st.sampled_from([frozenset({"delete"}), frozenset({"compact"})])),
        message_timestamp_type=data.draw(st.sampled_from(["CreateTime", "LogAppendTime"])),
    )
    try:
        prepared(sent, config)
    except KafkaError:
        return


# On the way, in an append


def test_small_batches_are_prepared_by_the_append() -> None:
    files = MemoryFiles()
    log = open_log(files, compression_type="gzip", message_timestamp_type="LogAppendTime")
    for first in (0, 10):
        info = log.append_as_leader(build_batch(records(10, start_ms=5)), 3, NOW_MS)
        assert (info.first_offset, info.log_append_time_ms) == (first, NOW_MS)
    stored = files.read_bytes(f"{log.directory}/{0:020d}.log")
    first = RecordBatch(stored)
    second = RecordBatch(stored, first.size_bytes)
    for number, found in enumerate((first, second)):
        assert (found.crc_ok(), found.compression, found.timestamp_type, found.leader_epoch) == (True, 1, 1, 3)
        assert (found.base_offset, found.base_timestamp, found.max_timestamp) == (10 * number, 5, NOW_MS)
        assert [record.value for record in found.records()] == [record.value for record in records(10)]


@pytest.mark.parametrize(
    ("name", "sent", "config"),
    [
        ("many bytes", lambda: batch(1, size=30_000), log_config(compression_type="gzip")),
        ("many records", lambda: batch(500, size=1), COMPACT),
        ("many plain bytes", lambda: batch(2, size=30_000, compression=1), log_config(compression_type="lz4")),
        ("slow level", batch, log_config(compression_type="zstd", compression_zstd_level=19)),
        ("timestamp", lambda: batch(500, timestamp_ms=NOW_MS + 10**8), log_config()),
    ],
)
def test_large_ones_must_be_prepared_before(name: str, sent: Callable[[], bytearray], config: LogConfig) -> None:
    with pytest.raises(NeedsPreparation):
        prepare_quickly(memoryview(sent()), config, NOW_MS, from_client=True)
    prepare_quickly(memoryview(sent()), log_config(message_timestamp_after_max_ms=10**9), NOW_MS, from_client=True)


def test_a_prepared_batch_is_appended_as_it_is() -> None:
    files = MemoryFiles()
    log = open_log(files, compression_type="zstd")
    sent = build_batch(records(2000))
    with pytest.raises(NeedsPreparation):
        log.append_as_leader(sent, 0, NOW_MS)
    done = run_all(prepare(sent, log.config, NOW_MS))
    assert log.append_as_leader(done, 4, NOW_MS).last_offset == 1999
    found = RecordBatch(files.read_bytes(f"{log.directory}/{0:020d}.log"))
    assert (found.crc_ok(), found.leader_epoch, found.compression) == (True, 4, 4)
    assert list(found.records()) == records(2000)


def test_many_records_are_looked_at_in_slices() -> None:
    slices = prepare(build_batch(records(3000)), COMPACT, NOW_MS)
    turns = 0
    while True:
        try:
            assert next(slices) is None
        except StopIteration:
            break
        turns += 1
    assert turns >= 3000 // ITEMS_PER_STEP
