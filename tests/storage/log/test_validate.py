"""The batches that a leader refuses, and the errors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import Record, RecordBatch, build_batch
from gregor.protocol.records.control import end_marker
from gregor.storage.log.validate import check_batch, stamp_append_time
from tests.storage.logs import NOW_MS, batch, log_config, open_log, patched, sequenced
from tests.storage.memory_files import MemoryFiles

HOUR_MS = 3_600_000

REFUSED = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "half a header": (batch()[:30], ErrorCode.INVALID_RECORD),
    "cut off": (batch()[:-1], ErrorCode.INVALID_RECORD),
    "length too short": (patched(batch(), ">i", 8, 48), ErrorCode.CORRUPT_MESSAGE),
    "length too short for any message": (patched(batch(), ">i", 8, 13), ErrorCode.CORRUPT_MESSAGE),
    "negative length": (patched(batch(), ">i", 8, -13), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (batch() + batch(), ErrorCode.INVALID_RECORD),
    "a tail that is no batch": (batch() + bytes(17), ErrorCode.CORRUPT_MESSAGE),
    "a tail of magic 9": (batch() + patched(batch(), ">b", 16, 9), ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (patched(batch(), ">b", 16, 1), ErrorCode.INVALID_RECORD),
    "magic 3": (patched(batch(), ">b", 16, 3), ErrorCode.CORRUPT_MESSAGE),
    "checksum": (patched(batch(), ">I", 17, 0xDEAD), ErrorCode.CORRUPT_MESSAGE),
    "record changed": (batch()[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    "codec 5": (patched(batch(), ">h", 21, 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (patched(batch(), ">h", 21, 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no records": (patched(batch(), ">i", 57, 0), ErrorCode.INVALID_RECORD),
    "negative count": (patched(batch(), ">i", 57, -1), ErrorCode.INVALID_RECORD),
    "count and delta differ": (patched(batch(2), ">i", 57, 3), ErrorCode.INVALID_RECORD),
    "negative delta": (patched(batch(), ">i", 23, -1), ErrorCode.INVALID_RECORD),
    "control batch": (end_marker(7, 0, 1, True, NOW_MS), ErrorCode.INVALID_RECORD),
    "transaction without producer": (batch(transactional=True), ErrorCode.INVALID_RECORD),
    "append time without a time": (patched(batch(timestamp_ms=-1), ">h", 21, 8), ErrorCode.INVALID_TIMESTAMP),
    "base offset": (batch(base_offset=5), ErrorCode.INVALID_RECORD),
    "no sequence": (sequenced(7, 0, -1), ErrorCode.INVALID_RECORD),
    "too large": (batch(size=5000), ErrorCode.MESSAGE_TOO_LARGE),
    "too late": (batch(timestamp_ms=NOW_MS + HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP),
}

ACCEPTED = {
    "latest": batch(timestamp_ms=NOW_MS + HOUR_MS),
    "very old": batch(timestamp_ms=0),
    "no timestamp": batch(timestamp_ms=-1),
    "gzip": batch(compression=1),
    "transactional": sequenced(7, 0, 0, transactional=True),
    "unused attribute bits": patched(batch(), ">h", 21, 0x80),
    "delete horizon": patched(batch(), ">h", 21, 0x40),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, code = REFUSED[name]
    log = open_log(MemoryFiles(), max_message_bytes=4096)
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(data, 0, NOW_MS)
    assert raised.value.code is code
    assert str(raised.value)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)
    assert log.latest_epoch() is None


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    log = open_log(MemoryFiles())
    assert log.append_as_leader(ACCEPTED[name], 0, NOW_MS).first_offset == 0
    assert log.size_bytes == len(ACCEPTED[name])


@pytest.mark.parametrize("name", ["control batch", "base offset", "no sequence"])
def test_broker_itself_may_write_it(name: str) -> None:
    log = open_log(MemoryFiles())
    log.append_as_leader(REFUSED[name][0], 0, NOW_MS, from_client=False)
    assert log.log_end_offset == 1


@pytest.mark.parametrize("tail", [b"\0", bytes(11), bytes(8) + b"\0\0\0\x20", batch()[:-1]])
def test_the_beginning_of_another_batch_is_cut_off(tail: bytes) -> None:
    files = MemoryFiles()
    log = open_log(files)
    sent = batch(2)
    assert log.append_as_leader(sent + tail, 0, NOW_MS).last_offset == 1
    stored = files.read_bytes(f"{log.directory}/{0:020d}.log")
    assert (len(stored), stored[16:]) == (len(sent), sent[16:])


def test_timestamps_before_the_topics_bound_are_refused() -> None:
    log = open_log(MemoryFiles(), message_timestamp_before_max_ms=1000)
    log.append_as_leader(batch(timestamp_ms=NOW_MS - 1000), 0, NOW_MS)
    log.append_as_leader(batch(timestamp_ms=-1), 0, NOW_MS)
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(batch(timestamp_ms=NOW_MS - 1001), 0, NOW_MS)
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    assert str(NOW_MS - 1001) in str(raised.value)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_fast_checks_and_full_checks_agree(data: st.DataObject) -> None:
    """The append path calls `check_batch` only if its own comparisons fail; a batch that passes those must pass it."""
    sent = bytearray(data.draw(st.sampled_from([batch(), batch(3), sequenced(7, 0, 4, 2)])))
    for _ in range(data.draw(st.integers(0, 2))):
        sent[data.draw(st.integers(0, 60))] = data.draw(st.sampled_from([0, 1, 2, 4, 8, 16, 32, 64, 127, 255]))
    if data.draw(st.booleans()):
        sent = patched(sent, ">b", 16, sent[16] - 256 if sent[16] > 127 else sent[16])
    config = log_config()
    log = open_log(MemoryFiles())
    try:
        check_batch(memoryview(bytes(sent)), config, from_client=True)
    except KafkaError as error:
        with pytest.raises(KafkaError) as raised:
            log.append_as_leader(bytes(sent), 0, NOW_MS)
        assert raised.value.code is error.code
        assert log.log_end_offset == 0
    else:
        try:
            log.append_as_leader(bytes(sent), 0, NOW_MS)
        except KafkaError as error:  # a damaged base timestamp: of records, which neither of the two reads
            assert error.code is ErrorCode.INVALID_TIMESTAMP
        else:
            assert log.log_end_offset > 0


def test_compacted_topic_wants_keys() -> None:
    log = open_log(MemoryFiles(), cleanup_policy=frozenset({"compact"}))
    log.append_as_leader(batch(3), 0, NOW_MS)
    log.append_as_leader(batch(3, compression=1), 0, NOW_MS)
    log.append_as_leader(end_marker(7, 0, 1, True, NOW_MS), 0, NOW_MS, from_client=False)
    for compression in (0, 1):
        without = build_batch([(b"k", b"v"), (None, b"v")], timestamp_ms=NOW_MS, compression=compression)
        with pytest.raises(KafkaError, match="without a key") as raised:
            log.append_as_leader(without, 0, NOW_MS)
        assert raised.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 7


def test_compacted_topic_refuses_records_that_cannot_be_read() -> None:
    log = open_log(MemoryFiles(), cleanup_policy=frozenset({"compact", "delete"}))
    damaged = batch()
    damaged[61] = 0x7F  # the first record's length
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(patched(damaged, ">b", 16, 2), 0, NOW_MS)
    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_append_time_is_stamped_into_the_header_alone() -> None:
    sent = build_batch([Record(0, 5, b"k", b"v", []), Record(1, 9, b"k", b"v", [])])
    stamped = bytearray(sent)
    stamp_append_time(memoryview(stamped), NOW_MS)
    read = RecordBatch(stamped)
    assert read.crc_ok()
    assert [record.timestamp for record in read.records()] == [NOW_MS, NOW_MS]
    assert stamped[61:] == sent[61:]
    assert stamped[23:35] == sent[23:35]


def test_topic_with_append_time_ignores_what_producers_say() -> None:
    files = MemoryFiles()
    log = open_log(files, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=10)
    info = log.append_as_leader(bytes(batch(2, timestamp_ms=12)), 4, NOW_MS)
    assert (info.log_append_time_ms, info.last_offset) == (NOW_MS, 1)
    read = RecordBatch(files.read_bytes(f"{log.directory}/{0:020d}.log"))
    assert (read.crc_ok(), read.max_timestamp, read.timestamp_type, read.leader_epoch) == (True, NOW_MS, 1, 4)
    assert log.segments[0].max_timestamp == NOW_MS
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(patched(batch(), ">h", 21, 8), 0, NOW_MS)
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP


def test_a_marker_that_cannot_be_read_is_not_appended() -> None:
    log = open_log(MemoryFiles())
    with pytest.raises(KafkaError, match="has no type") as raised:
        log.append_as_leader(batch(producer_id=7, producer_epoch=0, control=True), 0, NOW_MS, from_client=False)
    assert (raised.value.code, log.log_end_offset) == (ErrorCode.INVALID_RECORD, 0)
