"""Appending: what is written, when segments roll, and that a failed write leaves no trace."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import RecordBatch
from gregor.storage.log.log import Log
from gregor.storage.segment.index import PENDING_BYTES, OffsetIndex
from tests.storage.logs import DIRECTORY, NOW_MS, batch, offsets, open_log, patched, read_offsets, sequenced
from tests.storage.memory_files import MemoryFiles

BATCH_BYTES = len(batch())


def stored(files: MemoryFiles, base_offset: int = 0) -> bytes:
    return files.read_bytes(f"{DIRECTORY}/{base_offset:020d}.log")


def base_offsets(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# The written bytes


def test_offsets_and_epoch_are_set_in_place() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(3), 5, NOW_MS)
    buffer = b"frame" + batch(2) + b"rest of the frame"
    frame = bytearray(buffer)
    info = log.append_as_leader(memoryview(frame)[5 : 5 + len(batch(2))], 6, NOW_MS)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms, info.log_start_offset) == (3, 4, -1, 0)
    assert not info.duplicate
    sent = RecordBatch(frame, 5)
    assert (sent.base_offset, sent.leader_epoch, sent.crc_ok()) == (3, 6, True)
    assert stored(files)[len(batch(3)) :] == frame[5 : 5 + len(batch(2))]
    assert (frame[:5], frame[5 + len(batch(2)) :]) == (b"frame", b"rest of the frame")
    assert (log.log_end_offset, log.size_bytes) == (5, len(stored(files)))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(data).toreadonly()])
def test_any_buffer_is_taken(kind: type) -> None:
    files = MemoryFiles()
    log = open_log(files)
    data = batch(2)
    untouched = bytes(data)
    sent = kind(untouched if kind is bytes else data)
    log.append_as_leader(batch(), 0, NOW_MS)
    log.append_as_leader(sent, 0, NOW_MS)
    assert offsets(stored(files)) == [0, 1, 2]
    if memoryview(sent).readonly:
        assert bytes(sent) == untouched


def test_leader_epochs_are_noted_where_they_begin() -> None:
    log = open_log(MemoryFiles())
    for epoch in (2, 2, 4, 4, 4, 9):
        log.append_as_leader(batch(2), epoch, NOW_MS)
    assert log.epochs.entries() == [(2, 0), (4, 4), (9, 10)]
    assert log.latest_epoch() == 9
    assert [log.epoch_end_offset(epoch) for epoch in (1, 2, 3, 4, 9, 10, -1)] == [
        (1, 0), (2, 4), (2, 4), (4, 10), (9, 12), (-1, -1), (-1, -1),
    ]  # fmt: skip


# Rolling


def test_segment_rolls_when_the_next_batch_does_not_fit() -> None:
    log = open_log(MemoryFiles(), segment_bytes=3 * BATCH_BYTES)
    for _ in range(7):
        log.append_as_leader(batch(), 0, NOW_MS)
    assert base_offsets(log) == [0, 3, 6]
    assert [segment.size_bytes for segment in log.segments] == [3 * BATCH_BYTES, 3 * BATCH_BYTES, BATCH_BYTES]
    assert read_offsets(log, 0) == list(range(7))


def test_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(MemoryFiles(), segment_bytes=100)
    log.append_as_leader(batch(size=0), 0, NOW_MS)
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            log.append_as_leader(batch(size=100), 0, NOW_MS)
        assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.segments_count == 1


def test_segment_rolls_by_the_age_of_its_first_batch() -> None:
    log = open_log(MemoryFiles(), segment_ms=1000)
    for timestamp_ms in (50, 1050, 1051, 3000, 51, 1051):  # counted from the first batch, independently of the clock
        log.append_as_leader(batch(timestamp_ms=timestamp_ms), 0, NOW_MS)
    assert base_offsets(log) == [0, 2, 3]


def test_segment_without_timestamps_rolls_by_the_clock() -> None:
    log = open_log(MemoryFiles(), segment_ms=1000)
    for later in (0, 1000, 1001, 1500, 2002):
        log.append_as_leader(batch(timestamp_ms=-1), 0, NOW_MS + later)
    assert base_offsets(log) == [0, 2, 4]


def test_empty_segment_does_not_roll_however_old() -> None:
    log = open_log(MemoryFiles(), segment_ms=1000)
    log.append_as_leader(batch(), 0, NOW_MS + 100_000)
    assert base_offsets(log) == [0]


def test_jitter_makes_segments_roll_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", lambda count: (300).to_bytes(count))
    log = open_log(MemoryFiles(), segment_ms=1000, segment_jitter_ms=500)
    log.roll(NOW_MS)
    log.append_as_leader(batch(timestamp_ms=0), 0, NOW_MS)
    log.roll(NOW_MS)
    for timestamp_ms in (0, 700, 701):
        log.append_as_leader(batch(timestamp_ms=timestamp_ms), 0, NOW_MS)
    assert base_offsets(log) == [0, 1, 3]


def test_segment_rolls_when_an_index_is_full() -> None:
    offset_bound = open_log(MemoryFiles(), index_interval_bytes=0, segment_index_bytes=24)
    for _ in range(6):
        offset_bound.append_as_leader(batch(timestamp_ms=5), 0, NOW_MS)
    # The first batch gets no entry; 24 bytes hold three, or two times of which one is for the end.
    assert base_offsets(offset_bound) == [0, 2, 4]
    roomy = open_log(MemoryFiles(), index_interval_bytes=0, segment_index_bytes=48)
    for number in range(9):
        roomy.append_as_leader(batch(timestamp_ms=number), 0, NOW_MS)
    assert base_offsets(roomy) == [0, 4, 8]


def test_segment_rolls_when_an_offset_is_too_far_from_its_base() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_follower(batch(base_offset=3), NOW_MS)
    far = 2**31
    log.append_as_follower(batch(base_offset=far - 2), NOW_MS)
    log.append_as_follower(batch(base_offset=far), NOW_MS)
    assert base_offsets(log) == [0, far - 1]
    assert read_offsets(log, far - 5) == [far - 2, far]
    log.append_as_follower(batch(base_offset=3 * far), NOW_MS)  # too far from where the log ends
    assert base_offsets(log) == [0, far - 1, 3 * far]


def test_new_settings_hold_from_the_next_append_on() -> None:
    log = open_log(MemoryFiles())
    for _ in range(3):
        log.append_as_leader(batch(), 0, NOW_MS)
    smaller = log.config.with_overrides({"max.message.bytes": "90"})
    smaller.segment_bytes = 2 * BATCH_BYTES
    log.configure(smaller)
    log.append_as_leader(batch(size=0), 0, NOW_MS)
    assert base_offsets(log) == [0, 3]
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(batch(), 0, NOW_MS)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_roll_takes_a_producer_snapshot_and_completes_the_time_index() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(sequenced(7, 0, 0), 0, NOW_MS)
    log.roll(NOW_MS)
    assert log.roll(NOW_MS) is log.segments[-1]
    names = sorted(entry.name for entry in files.list_directory(DIRECTORY))
    assert names == [
        *(f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")),
        *(f"{1:020d}{suffix}" for suffix in (".index", ".log", ".snapshot", ".timeindex")),
        "leader-epoch-checkpoint",
    ]
    assert log.segments[0].time_index.last() == (NOW_MS, 0)


# Followers


def leaders_batches(count: int, first_offset: int = 0, epoch: int = 3, **fields: int) -> bytes:
    return b"".join(
        batch(2, base_offset=first_offset + 2 * number, leader_epoch=epoch, timestamp_ms=NOW_MS + number, **fields)
        for number in range(count)
    )


def test_follower_takes_batches_as_they_are() -> None:
    files = MemoryFiles()
    log = open_log(files)
    data = leaders_batches(3, first_offset=10) + leaders_batches(2, first_offset=20, epoch=5)
    info = log.append_as_follower(data, NOW_MS)
    assert (info.first_offset, info.last_offset) == (10, 23)
    assert stored(files) == data
    assert log.log_end_offset == 24
    assert log.epochs.entries() == [(3, 10), (5, 20)]
    assert read_offsets(log, 0) == [*range(10, 16), *range(20, 24)]


@pytest.mark.parametrize("split", [1, 2, 5, 100])
def test_follower_ends_with_the_leaders_files(split: int) -> None:
    """However the leader's log is cut into fetches."""
    leader_files, files = MemoryFiles(), MemoryFiles()
    limits = {"segment_bytes": 1000, "index_interval_bytes": 200}
    leader, log = open_log(leader_files, **limits), open_log(files, **limits)
    for number in range(30):
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number // 2} if number % 2 else {}
        leader.append_as_leader(batch(1, timestamp_ms=NOW_MS + number % 7, size=number, **fields), 0, NOW_MS)
    while log.log_end_offset < 30:
        piece = leader.read(log.log_end_offset, split * BATCH_BYTES, 30)
        log.append_as_follower(bytearray(piece.read()), NOW_MS)
        piece.release()
    assert base_offsets(log) == base_offsets(leader)
    for segment in leader.segments:
        for suffix in (".log", ".index", ".timeindex"):
            assert files.read_bytes(segment.stem + suffix) == leader_files.read_bytes(segment.stem + suffix)
    assert log.producers.entries[7].batches == leader.producers.entries[7].batches


def test_follower_leaves_a_batch_that_is_cut_off() -> None:
    log = open_log(MemoryFiles())
    data = leaders_batches(2)
    for cut in range(len(data)):
        info = log.append_as_follower(data[:cut], NOW_MS)
        whole = cut // (len(data) // 2)
        assert log.log_end_offset == 2 * whole
        assert info.last_offset == 2 * whole - 1
        log.truncate_to(0)


@pytest.mark.parametrize(
    ("damaged", "code"),
    [
        (patched(leaders_batches(1, first_offset=2), ">b", 16, 1), ErrorCode.CORRUPT_MESSAGE),
        (patched(leaders_batches(1, first_offset=2), ">I", 17, 77), ErrorCode.CORRUPT_MESSAGE),
        (patched(leaders_batches(1, first_offset=2), ">i", 8, 5), ErrorCode.CORRUPT_MESSAGE),
        (leaders_batches(1, first_offset=1), ErrorCode.OFFSET_OUT_OF_RANGE),
        # Damage comes first, wherever it lies: Apache Kafka checks every checksum before it compares offsets.
        (patched(leaders_batches(1, first_offset=1), ">I", 17, 77), ErrorCode.CORRUPT_MESSAGE),
        (
            leaders_batches(1, first_offset=1) * 2 + patched(leaders_batches(1, first_offset=2), ">I", 17, 77),
            ErrorCode.CORRUPT_MESSAGE,
        ),
        (patched(leaders_batches(1), ">q", 0, -(2**63)), ErrorCode.OFFSET_OUT_OF_RANGE),
        (patched(leaders_batches(1), ">q", 0, 2**63 - 1) * 2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (leaders_batches(1, first_offset=1) + leaders_batches(1)[:-1], ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_follower_appends_all_batches_or_none(damaged: bytes, code: ErrorCode) -> None:
    files = MemoryFiles()
    log = open_log(files)
    with pytest.raises(KafkaError) as raised:
        log.append_as_follower(leaders_batches(1) + damaged, NOW_MS)
    assert raised.value.code is code
    assert (log.log_end_offset, stored(files)) == (0, b"")


# Failures


def state_of(log: Log) -> object:
    segments = [
        (segment.base_offset, segment.size_bytes, segment.bytes_since_index_entry, segment.max_timestamp)
        for segment in log.segments
        if segment.size_bytes  # the roll before a failed append stays
    ]
    return log.log_end_offset, segments, sorted(log.producers.entries)


@pytest.mark.parametrize("pending_bytes", [1, 20])
@pytest.mark.parametrize("trouble", ["error", "short", "empty"])
@pytest.mark.parametrize("as_follower", [False, True])
def test_any_write_may_fail_and_leaves_no_trace(
    trouble: str, as_follower: bool, pending_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let each write of a sequence of appends fail once, in a log of its own; later appends behave as if it had not.

    A failed write of a roll to the indexes of the old segment fails no append: the next flush repeats it.
    """

    def append(log: Log, number: int) -> None:
        data = sequenced(7, 0, number, timestamp_ms=NOW_MS + number)
        if as_follower:
            log.append_as_follower(patched(data, ">qii", 0, number, len(data) - 12, 0), NOW_MS)
        else:
            log.append_as_leader(data, 0, NOW_MS)

    monkeypatch.setattr("gregor.storage.segment.index.PENDING_BYTES", pending_bytes)
    limits = {"segment_bytes": 4 * BATCH_BYTES, "index_interval_bytes": BATCH_BYTES}
    twin_files = MemoryFiles()
    twin = open_log(twin_files, **limits)
    for number in range(10):
        append(twin, number)
    writes = twin_files.calls["write"]
    assert writes > 12  # indexes among them
    twin.flusher.flush()

    failed_appends = 0
    for failing in range(writes):
        files = MemoryFiles()
        log = open_log(files, **limits)
        if trouble == "error":
            files.fail("write", after=failing, error=OSError(errno.ENOSPC, "No space left on device"))
        else:
            files.shorten(7 if trouble == "short" else 0, after=failing)
        failures = 0
        for number in range(10):
            before = state_of(log)
            try:
                append(log, number)
            except KafkaError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                assert state_of(log) == before
                failures += 1
                append(log, number)
        assert failures <= 1
        failed_appends += failures
        assert state_of(log) == state_of(twin)
        log.flusher.flush()
        for segment in twin.segments:
            for suffix in (".log", ".index", ".timeindex"):
                assert files.read_bytes(segment.stem + suffix) == twin_files.read_bytes(segment.stem + suffix)
    assert failed_appends >= 10


@pytest.mark.parametrize("operation", ["create", "write_atomically"])
def test_failed_roll_leaves_the_old_segment_active(operation: str) -> None:
    files = MemoryFiles()
    log = open_log(files, segment_bytes=2 * BATCH_BYTES)
    for after in range(3 if operation == "create" else 1):
        for _ in range(2):
            log.append_as_leader(batch(), 0, NOW_MS)
        before = base_offsets(log)
        files.fail(operation, after=after)
        with pytest.raises(KafkaError) as raised:
            log.append_as_leader(batch(), 0, NOW_MS)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert base_offsets(log) == before
        assert sum(entry.name.endswith(".log") for entry in files.list_directory(DIRECTORY)) == len(before)
    log.append_as_leader(batch(), 0, NOW_MS)
    assert read_offsets(log, 0) == list(range(log.log_end_offset))


def test_failed_write_of_the_epoch_file_appends_nothing() -> None:
    files = MemoryFiles()
    log = open_log(files)
    files.fail("write_atomically")
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(batch(), 3, NOW_MS)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert stored(files) == b""
    log.append_as_leader(batch(), 3, NOW_MS)
    assert open_log(files).epochs.entries() == [(3, 0)]


@pytest.mark.parametrize("operation", ["write", "write_atomically"])
def test_a_follower_notes_no_epoch_of_a_batch_that_it_could_not_write(operation: str) -> None:
    """With the later epoch noted, the one before it would begin again where its batches are written at last."""
    files = MemoryFiles()
    log = open_log(files)
    if operation == "write":  # the file of epochs is there: an append leaves a change of it to the next flush
        log.append_as_follower(leaders_batches(5, epoch=3), NOW_MS)
    before = log.log_end_offset, log.epochs.entries()
    data = leaders_batches(2, first_offset=10, epoch=3) + leaders_batches(2, first_offset=20, epoch=4)
    files.fail(operation, error=OSError(errno.EIO, "Input/output error"))
    with pytest.raises(KafkaError) as raised:
        log.append_as_follower(data, NOW_MS)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, log.epochs.entries(), log.offline) == (*before, False)
    log.append_as_follower(data, NOW_MS)
    assert log.epochs.entries() == [(3, 0 if operation == "write" else 10), (4, 20)]
    assert read_offsets(log, 10) == [*range(10, 14), *range(20, 24)]


@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
def test_batch_that_was_not_written_can_be_tried_again(time_type: str) -> None:
    files = MemoryFiles()
    log = open_log(files, message_timestamp_type=time_type)
    log.append_as_leader(batch(), 0, NOW_MS)
    sent = batch(2)
    files.fail("write", error=OSError(errno.ENOSPC, "full"))
    with pytest.raises(KafkaError):
        log.append_as_leader(sent, 0, NOW_MS)
    sent[:8] = bytes(8)  # the offset it would have got
    assert log.append_as_leader(sent, 0, NOW_MS + 5).first_offset == 1


@pytest.mark.parametrize("as_follower", [False, True])
@pytest.mark.parametrize("count", [0, 1])
def test_a_write_that_could_not_begin_needs_no_truncation(count: int, as_follower: bool) -> None:
    """Without a descriptor for the one there is none for the other."""
    files = MemoryFiles()
    log = open_log(files)
    log.assign_epoch(0, 0)
    for _ in range(count):
        log.append_as_leader(batch(), 0, NOW_MS)
    before = state_of(log)
    append = log.append_as_follower if as_follower else partial(log.append_as_leader, leader_epoch=0)
    for operation in ("write", "read", "truncate"):
        files.fail(operation, error=OSError(errno.EMFILE, "Too many open files"))
    with pytest.raises(KafkaError, match="Too many open files"):
        append(leaders_batches(1, first_offset=count) if as_follower else batch(), now_ms=NOW_MS)
    assert (state_of(log), log.offline) == (before, False)
    files.clear_faults()
    log.append_as_leader(batch(), 0, NOW_MS)
    assert read_offsets(log, 0) == list(range(count + 1))


@pytest.mark.parametrize("as_follower", [False, True])
def test_index_entries_wait_where_their_file_cannot_be_opened(as_follower: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=0)
    for number in range(PENDING_BYTES // OffsetIndex.ENTRY_BYTES):
        log.append_as_leader(batch(timestamp_ms=NOW_MS + number), 0, NOW_MS)
    files.fail("write", after=1, error=OSError(errno.EMFILE, "Too many open files"))
    append = log.append_as_follower if as_follower else partial(log.append_as_leader, leader_epoch=0)
    end = log.log_end_offset
    append(batch(base_offset=end if as_follower else 0), now_ms=NOW_MS)
    index = log.segments[0].offset_index
    assert (log.log_end_offset, index.entries, index.file.size_bytes()) == (end + 1, end, 0)
    log.append_as_leader(batch(), 0, NOW_MS)
    assert index.file.size_bytes() == index.entries * OffsetIndex.ENTRY_BYTES
    log.close(clean=True)
    assert read_offsets(open_log(files), 0) == list(range(end + 2))


def test_a_segment_that_cannot_end_for_lack_of_descriptors_ends_later() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(), 0, NOW_MS)
    for operation in ("write", "truncate"):
        files.fail(operation, error=OSError(errno.EMFILE, "Too many open files"))
    with pytest.raises(KafkaError, match="cannot begin a new segment"):
        log.roll(NOW_MS)
    assert not log.offline
    files.clear_faults()
    log.roll(NOW_MS)
    log.append_as_leader(batch(), 0, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert log.segments[0].time_index.last() == (NOW_MS, 0)


def test_log_that_cannot_undo_a_write_goes_offline() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(), 0, NOW_MS)
    files.shorten(7)
    files.fail("truncate")
    for _ in range(3):
        with pytest.raises(KafkaError) as raised:
            log.append_as_leader(batch(), 0, NOW_MS)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline
    assert read_offsets(log, 0) == [0]  # what was acknowledged can still be read
