"""Idempotent producers against a model that remembers everything, and the snapshots that survive a restart."""

from __future__ import annotations

import errno
import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.control import EndMarker
from gregor.storage.log.log import Log
from gregor.storage.producers.entry import AppendedBatch, ProducerEntry
from gregor.storage.producers.snapshot import format_snapshot, parse_snapshot
from gregor.storage.producers.state import MAX_AWAITED, NEW_LEADER_MS, ProducerStates
from gregor.storage.segment.batches import BatchHeader
from gregor.storage.segment.producer_trail import BATCHES_KEPT
from gregor.storage.segment.segment import Segment
from tests.storage.logs import NOW_MS, batch, open_log, patched, sequenced
from tests.storage.memory_files import MemoryFiles

LAST_SEQUENCE = 2**31 - 1


class NaiveProducer:
    """Every batch of one producer, and the rules of Kafka's ProducerAppendInfo in the order it applies them, with an
    answer of its own for what was stored long ago."""

    def __init__(self, old_repetition: ErrorCode) -> None:
        self.old_repetition = old_repetition
        self.epoch: int | None = None
        self.appended: list[tuple[list[int], int]] = []  # sequences of a batch, its first offset

    def append(self, epoch: int, sequences: list[int], offset: int) -> int | ErrorCode:
        """The offset the batch has, whether new or not; or the error."""
        if epoch == self.epoch:
            for known, first_offset in self.appended[-BATCHES_KEPT:]:
                if known == sequences:
                    return first_offset
            stored = {sequence for known, _ in self.appended[:-BATCHES_KEPT] for sequence in known}
            if stored.issuperset(sequences):
                return self.old_repetition
        if self.epoch is not None and epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.epoch is not None:
            last = self.appended[-1][0][-1] if epoch == self.epoch else -1
            if sequences[0] != (0 if last == LAST_SEQUENCE else last + 1):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch != self.epoch:
            self.appended = []
        self.epoch = epoch
        self.appended.append((sequences, offset))
        return offset


attempts = st.lists(
    st.tuples(
        st.sampled_from([11, 12]),
        st.integers(0, 2),  # epoch
        st.sampled_from(["next", "next", "next", "repeat", "repeat", "gap", "zero", "split"]),
        st.integers(1, 3),  # records
        st.integers(1, 16),  # how far back a repetition goes
    ),
    max_size=60,
)


@settings(max_examples=40, deadline=None)
@given(attempts, st.sampled_from([0, 5, LAST_SEQUENCE - 4]), st.booleans())
def test_log_answers_as_a_producer_model_that_forgets_nothing(
    attempts: list[tuple[int, int, str, int, int]], start: int, committed: bool
) -> None:
    log = open_log(MemoryFiles())
    old = ErrorCode.DUPLICATE_SEQUENCE_NUMBER if committed else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    models = {11: NaiveProducer(old), 12: NaiveProducer(old)}
    for producer_id, epoch, kind, count, back in attempts:
        model = models[producer_id]
        first = start
        if model.appended:
            first = (model.appended[-1][0][-1] + 1) & LAST_SEQUENCE
        if kind == "zero":
            first = 0
        elif kind == "gap":
            first += 2
        elif kind in ("repeat", "split") and model.appended:
            sequences = model.appended[-min(back, len(model.appended))][0]
            first, count = sequences[0], len(sequences) - (kind == "split" and len(sequences) > 1)
        sequences = [(first + number) & LAST_SEQUENCE for number in range(count)]
        expected = model.append(epoch, sequences, log.log_end_offset)
        end_offset = log.log_end_offset
        try:
            info = log.append_as_leader(sequenced(producer_id, epoch, sequences[0], count), 0, NOW_MS)
        except KafkaError as error:
            assert error.code == expected
            assert log.log_end_offset == end_offset
        else:
            assert (info.first_offset, info.last_offset) == (expected, info.first_offset + count - 1)
            assert info.duplicate == (expected != end_offset)
            assert log.log_end_offset == (end_offset if info.duplicate else end_offset + count)
            log.offsets.restore_high_watermark(log.log_end_offset if committed else 0)


def test_duplicate_is_answered_with_the_first_times_offsets_and_timestamp() -> None:
    log = open_log(MemoryFiles())
    for first_sequence in range(0, 10, 2):
        log.append_as_leader(sequenced(7, 0, first_sequence, 2, timestamp_ms=NOW_MS + first_sequence), 0, NOW_MS)
    size_bytes = log.size_bytes
    for first_sequence in range(0, 10, 2):
        info = log.append_as_leader(sequenced(7, 0, first_sequence, 2), 0, NOW_MS + 50)
        assert (info.duplicate, info.first_offset, info.last_offset) == (True, first_sequence, first_sequence + 1)
        assert info.log_append_time_ms == NOW_MS + first_sequence
    assert log.size_bytes == size_bytes


AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
TAKEN = ErrorCode.NONE


def answer(log: Log, sequence: int, count: int = 1, epoch: int = 0, now_ms: int = NOW_MS) -> ErrorCode:
    try:
        log.append_as_leader(sequenced(7, epoch, sequence, count), 0, now_ms)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_repetition_of_something_old_is_told_as_one_once_that_is_committed() -> None:
    """Any number of batches may follow at the next leader, before one comes again that was under way at a leader that
    hung."""
    log = open_log(MemoryFiles())
    for sequence in range(0, 2 * BATCHES_KEPT + 4, 2):
        assert answer(log, sequence, 2) is ErrorCode.NONE
    for high_watermark, code in (
        (0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (3, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (4, ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
    ):
        log.offsets.restore_high_watermark(high_watermark)
        assert [answer(log, 0, 2), answer(log, 2, 2), answer(log, 0, 4)] == [code] * 3
    assert log.append_as_leader(sequenced(7, 0, 4, 2), 0, NOW_MS).duplicate  # one of the last ten
    # Into what is kept, with other bounds; ahead; and another epoch's.
    for sequence, count in ((3, 2), (4, 1), (40, 1)):
        assert answer(log, sequence, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(log, 0, 2, epoch=1) is ErrorCode.NONE
    assert answer(log, 0, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_nobody_saw_being_stored_is_not_called_a_repetition() -> None:
    """The producer was unknown when it came."""
    log = open_log(MemoryFiles())
    for sequence in range(50, 52 + BATCHES_KEPT):
        assert answer(log, sequence) is ErrorCode.NONE
    log.offsets.restore_high_watermark(log.log_end_offset)
    assert answer(log, 49) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(log, 49, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(log, 50) is answer(log, 51) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
@pytest.mark.parametrize("after", [0, 1, BATCHES_KEPT - 1, 3 * BATCHES_KEPT])
def test_what_a_snapshot_does_not_tell_is_looked_up_in_the_log(segment_bytes: int, after: int) -> None:
    """A snapshot has the last batch of each producer only. The log begins in the middle of what the producer sent."""
    files = MemoryFiles()
    log = open_log(files, segment_bytes=segment_bytes)
    for sequence in range(50, 80):
        assert answer(log, sequence) is ErrorCode.NONE
        log.append_as_leader(sequenced(8, 0, sequence), 0, NOW_MS)
    log.close(clean=True)
    log = open_log(files, segment_bytes=segment_bytes)
    for sequence in range(80, 80 + after):
        assert answer(log, sequence) is ErrorCode.NONE
    log.offsets.restore_high_watermark(log.log_end_offset)
    kept = 80 + after - BATCHES_KEPT
    assert answer(log, 60) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    for sequence in range(kept, 80 + after):
        assert log.append_as_leader(sequenced(7, 0, sequence), 0, NOW_MS).duplicate
    for sequence in range(50, kept):
        assert answer(log, sequence) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert answer(log, 49) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    repeated = log.append_as_leader(sequenced(8, 0, 75), 0, NOW_MS)  # the same search covered this producer, too
    assert (repeated.duplicate, repeated.first_offset) == (True, 51)
    assert answer(log, 80 + after) is ErrorCode.NONE


def test_the_log_is_looked_into_once_and_only_for_what_lies_behind() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for sequence in (5, 6, 7):
        assert answer(log, sequence) == TAKEN
    log.close(clean=True)
    log = open_log(files)
    assert answer(log, 9) == GAP
    assert log.producers.recalled_from == 3
    assert answer(log, 3) == GAP
    assert log.producers.recalled_from is None


def test_another_epoch_in_the_log_tells_nothing_of_this_one() -> None:
    files = MemoryFiles()
    log = open_log(files)
    assert [answer(log, sequence) for sequence in (0, 1, 2)] == [TAKEN] * 3
    log.close(clean=True)
    log = open_log(files)
    assert [answer(log, sequence, epoch=1) for sequence in (0, 1)] == [TAKEN] * 2
    log.offsets.restore_high_watermark(log.log_end_offset)
    assert answer(log, 0, epoch=1) == TAKEN  # a repetition, among the last ten
    assert answer(log, 2**31 - 2, epoch=1) == GAP
    assert [entry[0] for entry in log.producers.entries[7].batches] == [0, 1]


def test_looking_back_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 70 bytes: one index entry in sixty."""
    look_back = 8
    monkeypatch.setattr("gregor.storage.producers.recall.MAX_INDEX_ENTRIES_BACK", look_back)
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=4096)
    for sequence in range(look_back * 60 + 500):
        assert answer(log, sequence) == TAKEN
    log.close(clean=True)
    log = open_log(files, index_interval_bytes=4096)
    log.offsets.restore_high_watermark(log.log_end_offset)
    end = log.log_end_offset
    assert answer(log, end - look_back * 40) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert answer(log, 3) == GAP


def test_a_log_that_cannot_be_read_tells_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    log = open_log(files)
    assert [answer(log, sequence) for sequence in (0, 1, 2)] == [TAKEN] * 3
    log.close(clean=True)
    log = open_log(files)

    def broken(*_: object, **__: object) -> object:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(Segment, "scan", broken)
    assert answer(log, 0) == GAP
    assert answer(log, 3) == TAKEN


def test_a_follower_knows_what_it_saw_being_stored() -> None:
    leader, follower = open_log(MemoryFiles()), open_log(MemoryFiles())
    sent = []
    for sequence in (*range(30), 40, *range(41, 60)):  # as if 30 to 39 were compacted away
        batch = sequenced(7, 0, sequence)
        if sequence == 40:
            leader.producers.clear()
        leader.append_as_leader(batch, 0, NOW_MS)
        sent.append(bytes(batch))
    follower.append_as_follower(b"".join(sent), NOW_MS)
    follower.offsets.restore_high_watermark(follower.log_end_offset)
    assert answer(follower, 29) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(follower, 39) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(follower, 40) is answer(follower, 49) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert answer(follower, 60) is ErrorCode.NONE


@pytest.mark.parametrize("roll", [False, True])
def test_what_follows_a_batch_that_the_disk_did_not_take_is_to_be_sent_again_with_it(roll: bool) -> None:
    """Not OUT_OF_ORDER_SEQUENCE_NUMBER: the producer did nothing wrong, and some begin a new epoch upon it, in which
    what is in doubt elsewhere is written twice."""
    files = MemoryFiles()
    log = open_log(files, segment_ms=50)
    log.append_as_leader(sequenced(7, 0, 0), 0, NOW_MS)
    time_ms = NOW_MS + 1000 if roll else NOW_MS
    files.fail("create" if roll else "write", error=OSError(errno.ENOSPC, "full"))
    for sequence in (1, 2, 3):
        with pytest.raises(KafkaError) as raised:
            log.append_as_leader(sequenced(7, 0, sequence, timestamp_ms=time_ms), 0, time_ms)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        if sequence == 1:
            log.append_as_leader(sequenced(8, 0, 0), 0, time_ms)  # another's: there is room again
    for sequence in (1, 2, 3):
        log.append_as_leader(sequenced(7, 0, sequence, timestamp_ms=time_ms), 0, time_ms)
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(sequenced(7, 0, 5), 0, time_ms)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_was_sent_behind_a_refused_batch_is_not_taken_before_it() -> None:
    """An unknown producer may begin anywhere: without the wait the later batch would be accepted, the first never."""
    log = open_log(MemoryFiles())
    log.producers.await_sequence(7, 0, 0)
    assert [answer(log, sequence) for sequence in (1, 2, 0, 1, 2)] == [AGAIN, AGAIN, TAKEN, TAKEN, TAKEN]
    log.producers.await_sequence(7, 0, 3)
    assert [answer(log, sequence) for sequence in (4, 3, 4, 6)] == [AGAIN, TAKEN, TAKEN, GAP]
    log.producers.await_sequence(7, 0, 5)
    log.producers.begin_to_lead(None, knows_all=log.log_start_offset == 0)
    assert answer(log, 6) == GAP
    # Others begin where they like.
    assert log.append_as_leader(sequenced(8, 0, 9), 0, NOW_MS).first_offset == 5


def test_of_several_refused_batches_the_first_is_awaited() -> None:
    """A client sends five before it knows that the first was refused."""
    log = open_log(MemoryFiles())
    assert answer(log, 0) == TAKEN
    for sequence in (1, 2, 3):
        log.producers.await_sequence(7, 0, sequence)
    assert [answer(log, sequence) for sequence in (4, 2, 3, 1, 2, 4)] == [*[AGAIN] * 3, TAKEN, TAKEN, AGAIN]
    # A batch that is refused once more is awaited again.
    log.producers.await_sequence(7, 0, 3)
    assert [answer(log, sequence) for sequence in (4, 3, 4)] == [AGAIN, TAKEN, TAKEN]
    # The refusal of the second reaches the client late: it repeats the first, and sends another that is new.
    for sequence in (7, 5, 6):
        log.producers.await_sequence(7, 0, sequence)
    assert [answer(log, sequence) for sequence in (5, 8, 6, 8, 7, 9)] == [TAKEN, AGAIN, TAKEN, AGAIN, TAKEN, GAP]


def test_refused_sequences_may_wrap_around() -> None:
    log = open_log(MemoryFiles())
    assert answer(log, LAST_SEQUENCE - 1) == TAKEN
    for sequence in (LAST_SEQUENCE, 0, 1):
        log.producers.await_sequence(7, 0, sequence)
    assert [answer(log, sequence) for sequence in (0, 1, 2)] == [AGAIN] * 3
    assert [answer(log, sequence) for sequence in (LAST_SEQUENCE, 1, 0, 1, 3)] == [TAKEN, AGAIN, TAKEN, TAKEN, GAP]


def test_the_first_batch_of_an_epoch_is_awaited_too() -> None:
    log = open_log(MemoryFiles())
    assert [answer(log, sequence) for sequence in (0, 1)] == [TAKEN, TAKEN]
    assert answer(log, 1, epoch=1) == GAP
    for sequence in (0, 1):
        log.producers.await_sequence(7, 1, sequence)
    assert answer(log, 3) == GAP  # not of that epoch
    assert [answer(log, sequence, epoch=1) for sequence in (2, 1, 0, 1, 2)] == [AGAIN, AGAIN, TAKEN, TAKEN, TAKEN]


def test_a_gap_passes_where_the_leader_is_new() -> None:
    """The leader before may have refused what is missing."""
    log = open_log(MemoryFiles())
    assert [answer(log, sequence) for sequence in (5, 6)] == [TAKEN, TAKEN]
    log.producers.begin_to_lead(NOW_MS, knows_all=log.log_start_offset == 0)
    late_ms = NOW_MS + NEW_LEADER_MS - 1
    assert answer(log, 8, now_ms=late_ms) == AGAIN
    assert answer(log, 1, epoch=1, now_ms=late_ms) == AGAIN
    with pytest.raises(KafkaError, match=r"producer 8: sequence 0 expected, got 3"):
        log.append_as_leader(sequenced(8, 0, 3), 0, late_ms)
    # A sequence that lies behind cannot become right.
    assert answer(log, 3, now_ms=late_ms) == GAP
    assert answer(log, 8, now_ms=late_ms + 1) == GAP
    assert answer(log, 1, epoch=1, now_ms=late_ms + 1) == GAP
    # The clock was set back by 20 min: the leader counts as new again, but for no longer than a window.
    back_ms = NOW_MS - 1_200_000
    assert answer(log, 8, now_ms=back_ms) == AGAIN
    assert answer(log, 8, now_ms=back_ms + NEW_LEADER_MS - 1) == AGAIN
    assert answer(log, 8, now_ms=back_ms + NEW_LEADER_MS) == GAP
    assert [answer(log, sequence) for sequence in (7, 8)] == [TAKEN, TAKEN]
    assert log.append_as_leader(sequenced(8, 0, 3), 0, late_ms + 1).first_offset == 4


def test_who_is_unknown_where_records_were_deleted_begins_anywhere_at_a_new_leader_too() -> None:
    log = open_log(MemoryFiles())
    assert answer(log, 0) == TAKEN
    log.offsets.restore_high_watermark(1)
    log.retention.advance_log_start_offset(1)
    log.producers.begin_to_lead(NOW_MS, knows_all=log.log_start_offset == 0)
    assert answer(log, 2) == AGAIN
    assert log.append_as_leader(sequenced(8, 0, 3), 0, NOW_MS).first_offset == 1


def test_only_so_many_refused_producers_are_waited_for() -> None:
    """Their ids may be made up."""
    log = open_log(MemoryFiles())
    for producer_id in range(MAX_AWAITED):
        log.producers.await_sequence(producer_id, 0, 0)
    log.producers.await_sequence(0, 0, 1)  # lately again
    for producer_id in range(MAX_AWAITED, MAX_AWAITED + 3):
        log.producers.await_sequence(producer_id, 0, 0)
    assert len(log.producers.awaited) == MAX_AWAITED
    assert {1, 2, 3}.isdisjoint(log.producers.awaited)
    assert log.producers.awaited[0] == (0, 0, 1)
    for producer_id in (4, MAX_AWAITED + 2):
        with pytest.raises(KafkaError):
            log.append_as_leader(sequenced(producer_id, 0, 1), 0, NOW_MS)
    assert log.append_as_leader(sequenced(1, 0, 1), 0, NOW_MS).first_offset == 0


def test_sequence_of_a_batch_may_wrap_around() -> None:
    log = open_log(MemoryFiles())
    log.append_as_leader(sequenced(7, 0, LAST_SEQUENCE - 1, 4), 0, NOW_MS)
    assert log.append_as_leader(sequenced(7, 0, LAST_SEQUENCE - 1, 4), 0, NOW_MS).duplicate
    assert log.append_as_leader(sequenced(7, 0, 2), 0, NOW_MS).first_offset == 4


def test_broker_itself_needs_no_sequences_but_is_fenced() -> None:
    log = open_log(MemoryFiles())
    log.append_as_leader(sequenced(7, 3, -1), 0, NOW_MS, from_client=False)
    log.append_as_leader(sequenced(7, 3, -1), 0, NOW_MS, from_client=False)
    assert log.log_end_offset == 2
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(sequenced(7, 2, -1), 0, NOW_MS, from_client=False)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_transaction_is_remembered_until_its_marker() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(sequenced(7, 0, 0), 0, NOW_MS)
    log.append_as_leader(sequenced(7, 0, 1, transactional=True), 0, NOW_MS)
    log.append_as_leader(sequenced(7, 0, 2, transactional=True), 0, NOW_MS)
    assert log.producers.entries[7].transaction_first_offset == 1
    states = ProducerStates(files, log.directory)
    for scanned in log.segments[0].scan():
        states.replay(scanned)
    assert format_snapshot(states.entries.values()) == format_snapshot(log.producers.entries.values())
    marker = BatchHeader.read(
        batch(
            base_offset=3,
            timestamp_ms=NOW_MS + 9,
            producer_id=7,
            producer_epoch=1,
            transactional=True,
            control=True,
        )
    )
    states.replay(marker, EndMarker(commit=True, coordinator_epoch=4))
    entry = states.entries[7]
    assert (entry.transaction_first_offset, entry.coordinator_epoch, entry.epoch) == (-1, 4, 1)
    assert (entry.batches, entry.next_sequence, entry.last_timestamp) == ([], 0, NOW_MS + 9)


def test_replay_passes_over_batches_without_a_producer() -> None:
    states = ProducerStates(MemoryFiles(), "/d")
    states.replay(BatchHeader.read(batch(5)))
    assert states.entries == {}


# Expiry


def test_idle_producers_expire_unless_a_transaction_is_open() -> None:
    states = ProducerStates(MemoryFiles(), "/d", expiration_ms=100)
    for producer_id, timestamp, transaction in ((1, 0, -1), (2, 50, -1), (3, 0, 17)):
        entry = states.entry(producer_id)
        entry.add(0, (0, 17, 0, timestamp))
        entry.transaction_first_offset = transaction
    states.expire(now_ms=100)
    assert list(states.entries) == [2, 3]


# Snapshots


def entry_with(producer_id: int, **attributes: int) -> ProducerEntry:
    entry = ProducerEntry(producer_id)
    entry.add(attributes.pop("epoch", 0), (5, 100, 2, NOW_MS))
    for name, value in attributes.items():
        setattr(entry, name, value)
    return entry


def test_snapshot_layout_is_kafkas() -> None:
    data = format_snapshot([entry_with(4711, epoch=3, coordinator_epoch=9, transaction_first_offset=98)])
    body = struct.pack(">iqhiqiqiq", 1, 4711, 3, 5, 100, 2, NOW_MS, 9, 98)
    assert data == struct.pack(">hI", 1, crc32c(body)) + body


def test_snapshot_of_a_producer_whose_batches_are_forgotten() -> None:
    entry = ProducerEntry(1)
    entry.end_transaction(2, NOW_MS, 0)
    (again,) = parse_snapshot(format_snapshot([entry]))
    assert (again.batches, again.epoch, again.last_timestamp, again.next_sequence) == ([], 2, NOW_MS, 0)


def test_parsed_snapshot_has_each_last_batch() -> None:
    (entry,) = parse_snapshot(format_snapshot([entry_with(1)]))
    assert entry.batches == [AppendedBatch(5, 100, 2, NOW_MS)]
    assert entry.next_sequence == 6


def test_snapshot_fed_byte_by_byte_and_with_a_tail_is_damaged() -> None:
    data = format_snapshot([entry_with(1), entry_with(2)])
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="snapshot"):
            parse_snapshot(data[:cut])
    with pytest.raises(ValueError, match="checksum"):
        parse_snapshot(data + b"\0")


@settings(max_examples=60)
@given(st.binary(max_size=120))
def test_parser_raises_nothing_but_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="snapshot"):
        parse_snapshot(data)


@pytest.mark.parametrize("field", [b"\0\0", b"\0\2"])
def test_snapshot_of_another_version_is_refused(field: bytes) -> None:
    data = field + format_snapshot([])[2:]
    with pytest.raises(ValueError, match="version"):
        parse_snapshot(data)


def snapshots(files: MemoryFiles, offsets: dict[int, bytes | None]) -> ProducerStates:
    files.make_directory("/d")
    for offset, data in offsets.items():
        entry = entry_with(offset)
        files.create(f"/d/{offset:020d}.snapshot").write(format_snapshot([entry]) if data is None else data)
    states = ProducerStates(files, "/d")
    states.list_snapshots(entry.name for entry in files.list_directory("/d"))
    return states


def names(files: MemoryFiles) -> list[int]:
    return sorted(int(entry.name.split(".")[0]) for entry in files.list_directory("/d"))


def test_names_that_are_no_offsets_are_no_snapshots() -> None:
    states = ProducerStates(MemoryFiles(), "/d")
    states.list_snapshots(
        ["x.snapshot", "\u00b2.snapshot", "-1.snapshot", ".snapshot", "00000000000000000007.snapshot"]
    )
    assert states.snapshot_offsets == [7]


def test_load_takes_the_newest_good_snapshot_and_deletes_bad_and_later_ones() -> None:
    files = MemoryFiles()
    states = snapshots(files, {10: None, 20: None, 30: b"damaged", 40: None})
    assert states.load(0, 35) == 20
    assert list(states.entries) == [20]
    assert names(files) == states.snapshot_offsets == [10, 20]


def test_load_without_a_usable_snapshot_starts_with_the_log() -> None:
    files = MemoryFiles()
    assert snapshots(files, {10: b"damaged"}).load(5, 35) == 5
    assert snapshots(files, {10: None}).load(12, 35) == 12


def test_producers_expire_after_the_load_by_the_expiration_of_then() -> None:
    states = snapshots(MemoryFiles(), {10: None})
    assert states.load(0, 10) == 10
    now_ms = NOW_MS + states.expiration_ms
    states.forget_after(2 * states.expiration_ms)
    states.expire(now_ms)
    assert list(states.entries) == [10]
    states.forget_after(states.expiration_ms // 2)
    states.expire(now_ms)
    assert states.entries == {}


def test_stray_snapshots_go_but_for_the_newest_beyond_all_segments() -> None:
    files = MemoryFiles()
    states = snapshots(files, {0: None, 10: None, 15: None, 20: None, 25: None, 33: None})
    states.remove_stray_snapshots([0, 10, 20])
    assert names(files) == [0, 10, 20, 33]
    states.remove_stray_snapshots([0, 10, 20, 40])
    assert names(files) == [0, 10, 20]


def test_snapshot_is_taken_once_per_offset_and_forgotten_with_its_segment() -> None:
    files = MemoryFiles()
    states = snapshots(files, {})
    states.take_snapshot(10)
    states.take_snapshot(10)
    assert files.calls["write_atomically"] == 1
    states.take_snapshot(20)
    assert states.mark_snapshot_deleted(10) == ["/d/00000000000000000010.snapshot.deleted"]
    assert states.mark_snapshot_deleted(10) == []
    assert states.unsynced_snapshots == ["/d/00000000000000000020.snapshot"]
    files.unlink("/d/00000000000000000020.snapshot")
    assert states.mark_snapshot_deleted(20) == []


def test_batches_behind_the_snapshot_are_replayed() -> None:
    files = MemoryFiles()
    log = open_log(files, segment_bytes=250)
    for sequence in range(9):
        log.append_as_leader(sequenced(7, 0, sequence), 0, NOW_MS)
    for segment in log.segments:
        segment.become_inactive()
    assert len(log.segments) > 3
    again = open_log(files, segment_bytes=250)  # as after recovery: no snapshot at the end
    assert again.producers.entries[7].next_sequence == 9
    assert again.append_as_leader(sequenced(7, 0, 8), 0, NOW_MS).duplicate


def test_flipped_sequence_is_a_wrong_checksum_not_another_sequence() -> None:
    log = open_log(MemoryFiles())
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(patched(sequenced(7, 0, 0), ">I", 17, 1), 0, NOW_MS)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.producers.entries == {}
