"""gregor.storage.folders.move by itself: errors of both disks, and moves that are interrupted and resumed."""

from __future__ import annotations

import errno
import json
import struct
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.folders.manager import LogManager
from gregor.storage.folders.move import LAST_BYTES, LogMove
from gregor.storage.folders.move_progress import CopiedSegment, format_progress, parse_progress
from gregor.storage.log.log import Log
from gregor.storage.producers.transaction_checks import check_verified
from gregor.storage.segment.index import SparseIndex
from gregor.storage.segment.transaction_index import AbortedTransaction
from tests.storage.logs import NOW_MS, append_marker, batch, log_config, read_offsets, sequenced
from tests.storage.memory_files import MemoryFiles
from tests.storage.transaction_twin import index_entries as aborted_entries
from tests.support.cycles import left_in_cycles

HOME, TARGET, OTHER = "/home", "/target", "/third"


def loaded(files: MemoryFiles, segment_bytes: int = 1 << 20) -> LogManager:
    for folder in (HOME, TARGET, OTHER):
        files.make_directory(folder)
    manager = LogManager(BrokerConfig({"log.dirs": f"{HOME},{TARGET},{OTHER}"}), files, lambda: NOW_MS)
    for _ in manager.load(lambda topic: log_config(index_interval_bytes=0, segment_bytes=segment_bytes)):
        pass
    return manager


def begun(files: MemoryFiles, count: int = 10, segment_bytes: int = 1 << 20) -> tuple[LogManager, LogMove]:
    manager = loaded(files, segment_bytes)
    log = manager.get_or_create("t", 0, ZERO_UUID, log_config(index_interval_bytes=0, segment_bytes=segment_bytes))
    for _ in range(count):
        log.append_as_leader(batch(1), 0, NOW_MS)
    log.offsets.restore_high_watermark(count)
    return manager, manager.moves.begin(("t", 0), manager.folders[1])


def copied(move: LogMove) -> None:
    while (plan := move.plan()) is not None:
        plan.run()
        move.copied(plan)


def index_entries(files: MemoryFiles, folder: str) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">ii", files.read_bytes(f"{folder}/t-0/{0:020d}.index")))


def test_a_swap_that_is_tried_again_copies_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index entries for which the full disk has no room come from memory, with each attempt."""
    files = MemoryFiles()
    manager, move = begun(files)
    copied(move)
    write_pending = SparseIndex.write_pending

    def full(index: SparseIndex) -> None:
        if index.file.path.startswith(HOME):
            raise OSError(errno.ENOSPC, "no room")
        write_pending(index)

    monkeypatch.setattr(SparseIndex, "write_pending", full)
    for _ in range(5):
        move.log.append_as_leader(batch(1), 0, NOW_MS)
    for _ in range(2):
        files.fail("rename", error=OSError(errno.ENOSPC, "no room for a longer name", move.log.directory))
        with pytest.raises(OSError, match="longer name") as caught:
            manager.finish_move(move)
        assert move.failed_folder(caught.value).path == HOME
        assert move.is_caught_up()
    moved, _ = manager.finish_move(move)
    assert moved.directory == f"{TARGET}/t-0"
    entries = index_entries(files, TARGET)
    assert len(entries) == 14
    assert entries == sorted(set(entries))
    assert read_offsets(moved, 0) == list(range(15))


@pytest.mark.parametrize("more", [0, LAST_BYTES])
def test_a_swap_that_is_tried_again_with_room_copies_nothing_twice(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries that came from memory are in the source's files by then. With many more bytes a plan copies them."""
    files = MemoryFiles()
    manager, move = begun(files)
    copied(move)
    with monkeypatch.context() as full:
        full.setattr(SparseIndex, "write_pending", lambda index: None)
        for number in range(1, 6):
            move.log.append_as_leader(batch(1, timestamp_ms=NOW_MS + number), 0, NOW_MS)
        files.fail("rename", error=OSError(errno.ENOSPC, "no room for a longer name", move.log.directory))
        with pytest.raises(OSError, match="longer name"):
            manager.finish_move(move)
    if more:
        move.log.append_as_leader(batch(1, timestamp_ms=NOW_MS, size=more), 0, NOW_MS)
        copied(move)
    moved, old = manager.finish_move(move)
    for suffix in ("log", "index", "timeindex"):
        copy, original = (files.read_bytes(f"{path}/{0:020d}.{suffix}") for path in (moved.directory, old))
        assert copy == original


def test_both_logs_of_a_move_are_freed_without_a_collection() -> None:
    manager = begun(MemoryFiles())[0]
    dropped: list[ref[Log]] = []

    def move_and_remove() -> None:
        move = manager.moves.under_way["t", 0]  # type: ignore[index]
        copied(move)
        moved, _ = manager.finish_move(move)
        dropped.extend([ref(move.log), ref(moved)])
        manager.remove("t", 0)

    assert left_in_cycles(move_and_remove) == set()
    assert [log() for log in dropped] == [None, None]


def test_an_error_is_about_the_disk_that_it_came_from() -> None:
    files = MemoryFiles()
    manager, move = begun(files)
    home, target, _ = manager.folders
    for path, folder in (
        (f"{HOME}/t-0", home),
        (f"{HOME}/t-0/{0:020d}.log", home),
        (f"{move.directory}/{0:020d}.log", target),
        (f"{HOME}/t-00/x", target),  # no file of this log
        (None, target),  # a write or a sync of the copy
    ):
        assert move.failed_folder(OSError(errno.EIO, "a bad block", path)) is folder
    plan = move.plan()
    assert plan is not None
    files.create(f"{HOME}/t-0/{0:020d}.log")  # emptied behind its back
    plan.run()
    with pytest.raises(OSError, match="shorter") as caught:
        move.copied(plan)
    assert move.failed_folder(caught.value) is home


def test_what_a_truncation_makes_shorter_is_no_error() -> None:
    files = MemoryFiles()
    manager, move = begun(files)
    plan = move.plan()
    assert plan is not None
    move.log.truncate_to(3)
    plan.run()
    move.copied(plan)
    copied(move)
    moved, _ = manager.finish_move(move)
    assert read_offsets(moved, 0) == [0, 1, 2]


# Moves resumed after an interruption. Twelve batches, three in a segment.

SEGMENT_BYTES = 3 * len(batch(1))


def interrupted(files: MemoryFiles, pieces: int) -> LogManager:
    """A broker that has copied so many pieces: one is a segment."""
    manager, move = begun(files, 12, SEGMENT_BYTES)
    assert move.log.segments_count == 4
    for _ in range(pieces):
        plan = move.plan()
        assert plan is not None
        plan.run()
        move.copied(plan)
    return manager


def gone_on_with(files: MemoryFiles, manager: LogManager) -> tuple[int, LogManager]:
    """How many bytes were there already, and the manager after the move."""
    assert manager.moves.wishes == {("t", 0): manager.folders[1]}
    move = manager.moves.begin(("t", 0), manager.folders[1])
    taken_over_bytes = move.size_bytes
    expected = read_offsets(move.log, move.log.log_start_offset)
    assert expected[-1] == 11
    for path in move.unlinkable:
        files.unlink(path)
    while (plan := move.plan()) is not None:
        plan.run()
        move.copied(plan)
    moved, old = manager.finish_move(move)
    files.remove_directory(old)
    assert read_offsets(moved, moved.log_start_offset) == expected
    assert moved.producers.entries == {}
    return taken_over_bytes, manager


@pytest.mark.parametrize("pieces", range(5))
@pytest.mark.parametrize("end", ["stop", "kill", "power cut"])
def test_it_goes_on_behind_the_segments_that_were_copied_whole(pieces: int, end: str) -> None:
    files = MemoryFiles()
    manager = interrupted(files, pieces)
    # Of a process that is killed the last one is not noted yet: that is done with the next piece.
    whole = min(pieces if end == "stop" else max(0, pieces - 1), 3)
    if end == "stop":
        manager.close_all()
    elif end == "power cut":
        manager.logs["t", 0].flusher.flush()
        manager.checkpoints.write_all()
        files.sync_directory(HOME)
        files.sync_directory(TARGET)
        files.crash()
    again = loaded(files, SEGMENT_BYTES)
    taken_over_bytes, again = gone_on_with(files, again)
    if end == "power cut":  # the note is not synced: it is there, or not
        assert taken_over_bytes in (0, whole * SEGMENT_BYTES)
    else:
        assert taken_over_bytes == whole * SEGMENT_BYTES
    moved = again.logs["t", 0]
    assert (moved.directory, moved.log_end_offset) == (f"{TARGET}/t-0", 12)
    again.close_all()
    third = loaded(files, SEGMENT_BYTES)
    assert third.moves.wishes == {}
    assert read_offsets(third.logs["t", 0], 0) == list(range(12))


@pytest.mark.parametrize("change", ["cut", "compacted", "removed", "copy cut", "note lost", "note broken"])
def test_a_segment_that_is_another_by_now_is_copied_again(change: str) -> None:
    files = MemoryFiles()
    manager = interrupted(files, 4)
    (path,) = [f"{TARGET}/{one.name}" for one in files.list_directory(TARGET) if one.is_directory]
    manager.close_all()
    log_file = files.open(f"{HOME}/t-0/{0:020d}.log")
    changed = 1
    if change == "cut":
        log_file.truncate(SEGMENT_BYTES // 3)
    elif change == "compacted":
        data = files.read_bytes(log_file.path)
        files.unlink(log_file.path)
        files.create(log_file.path).write(data)  # no byte of it differs, but who would know
    elif change == "removed":
        for suffix in (".log", ".index", ".timeindex"):
            files.unlink(f"{HOME}/t-0/{0:020d}{suffix}")
    elif change == "copy cut":
        files.open(f"{path}/{0:020d}.timeindex").truncate(0)
    else:
        files.write_atomically(
            f"{path}/gregor-moved", b"" if change == "note lost" else b'{"version":1,"segments":[[0]]}'
        )
        changed = 3
    again = loaded(files, SEGMENT_BYTES)
    taken_over_bytes, again = gone_on_with(files, again)
    assert taken_over_bytes == (3 - changed) * SEGMENT_BYTES
    names = [one.name for one in files.list_directory(f"{TARGET}/t-0")]
    assert not any(name.endswith(".deleted") for name in names)
    bases = [one.base_offset for one in again.logs["t", 0].segments]
    assert sorted(int(name[:20]) for name in names if name.endswith(".log")) == bases


def test_a_copy_that_becomes_the_partition_at_a_start_survives_a_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original is removed right after: its name is gone then, and that of the copy must be on the disk."""
    files = MemoryFiles()
    manager, move = begun(files)
    copied(move)
    moved, old = manager.finish_move(move)
    files.rename(moved.directory, move.directory)  # as after a kill between the two renames
    calls: list[tuple[str, str]] = []
    rename, sync_directory = files.rename, files.sync_directory

    def renamed(source: str, target: str) -> None:
        rename(source, target)
        calls.append(("rename", target))

    def synced(path: str) -> None:
        sync_directory(path)
        calls.append(("sync", path))

    monkeypatch.setattr(files, "rename", renamed)
    monkeypatch.setattr(files, "sync_directory", synced)
    again = loaded(files)
    at = calls.index(("rename", f"{TARGET}/t-0"))
    assert calls[at + 1] == ("sync", TARGET)
    assert again.pop_unlinkable() == [old]
    assert read_offsets(again.logs["t", 0], 0) == list(range(10))


def test_a_copy_that_nobody_goes_on_with_is_removed() -> None:
    for elsewhere in (True, False):
        files = MemoryFiles()
        interrupted(files, 3).close_all()
        again = loaded(files, SEGMENT_BYTES)
        (copy,) = [one.name for one in files.list_directory(TARGET) if one.name.endswith("-future")]
        if elsewhere:
            move = again.moves.begin(("t", 0), again.folders[2])
            (leftover,) = move.unlinkable
            assert move.size_bytes == 0
            assert again.moves.wishes == {}
        else:
            assert again.remove("t", 0)
            (leftover,) = again.pop_unlinkable()
        assert leftover.startswith(f"{TARGET}/t-0.")
        assert leftover.endswith("-delete")
        assert not files.exists(f"{TARGET}/{copy}/{0:020d}.log")
        assert files.exists(f"{leftover}/{0:020d}.log")


def test_of_two_copies_one_is_gone_on_with() -> None:
    files = MemoryFiles()
    interrupted(files, 3).close_all()
    stray = f"{OTHER}/t-0.{bytes(16).hex()}-future"
    files.make_directory(stray)
    again = loaded(files, SEGMENT_BYTES)
    ((key, folder),) = again.moves.wishes.items()
    assert key == ("t", 0)
    (removed,) = again.pop_unlinkable()
    assert (folder.path, removed.rpartition("/")[0]) == (OTHER, TARGET)


numbers = st.integers(-1, 2**64) | st.none() | st.text(max_size=3) | st.booleans()
notes = st.recursive(numbers, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.integers(0, 2**63), st.tuples(*[st.tuples(*[st.integers(0, 2**63)] * 3)] * 2), max_size=4))
def test_a_note_is_read_as_it_was_written(
    segments: dict[int, tuple[tuple[int, int, int], tuple[int, int, int]]],
) -> None:
    noted = {base: CopiedSegment(*one) for base, one in segments.items()}
    data = format_progress(noted)
    assert parse_progress(data) == noted
    assert all(parse_progress(data[:cut]) == {} for cut in range(len(data)))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40) | notes.map(lambda one: json.dumps({"version": 1, "segments": one}).encode()))
def test_what_is_no_note_says_nothing(data: bytes) -> None:
    assert all(base >= 0 and len(one.sizes) == len(one.source) == 3 for base, one in parse_progress(data).items())


def test_nor_does_one_without_end() -> None:
    assert parse_progress(b"[" * 100_000) == {}


def test_transactions_move_with_their_log() -> None:
    """Those that are aborted while the copy is made, and in the swap."""
    files = MemoryFiles()
    manager, move = begun(files, 0, segment_bytes=400)
    log = move.log

    def abort(producer_id: int) -> None:
        log.append_as_leader(sequenced(producer_id, 0, 0, transactional=True), 0, NOW_MS)
        append_marker(log, EndTransaction(producer_id, 0, 3, commit=False))

    abort(1)
    copied(move)
    for producer_id in (2, 3, 4, 5):
        abort(producer_id)
    copied(move)
    abort(6)
    log.append_as_leader(sequenced(7, 0, 0, transactional=True), 0, NOW_MS)
    log.offsets.restore_high_watermark(log.log_end_offset)
    guard = log.producers.begin_verification(8, 0, 0, False)
    assert log.segments_count > 2
    expected = aborted_entries(log)
    assert move.is_caught_up()
    moved, _ = manager.finish_move(move)
    assert aborted_entries(moved) == expected
    assert [one.producer_id for one in expected] == [1, 2, 3, 4, 5, 6]
    assert moved.last_stable_offset == 12
    check_verified(moved.producers.entries.get(8), moved.producers.verifications, (8, 0, 0), guard)
    for base in (segment.base_offset for segment in moved.segments if segment.transaction_index is not None):
        assert len(files.read_bytes(f"{TARGET}/t-0/{base:020d}.txnindex")) % 34 == 0
    append_marker(moved, EndTransaction(7, 0, 3, commit=False))
    moved.offsets.restore_high_watermark(moved.log_end_offset)
    assert aborted_entries(moved)[-1] == AbortedTransaction(7, 12, 13, 14)


def moved_log(manager: LogManager) -> Log:
    move = manager.moves.begin(TopicPartition("t", 0), manager.folders[1])
    copied(move)
    return manager.finish_move(move)[0]


def test_a_batch_that_is_sent_again_after_a_start_and_a_move_is_found_in_the_log() -> None:
    files = MemoryFiles()
    manager = loaded(files)
    log = manager.get_or_create("t", 0, ZERO_UUID, log_config())
    for sequence in range(5):
        log.append_as_leader(sequenced(7, 0, sequence), 0, NOW_MS)
    manager.close_all()
    moved = moved_log(loaded(files))  # whose snapshot knows the last batch only
    info = moved.append_as_leader(sequenced(7, 0, 2), 0, NOW_MS)
    assert (info.first_offset, info.duplicate) == (2, True)


def test_a_move_keeps_what_a_new_leader_waits_for() -> None:
    manager = loaded(MemoryFiles())
    log = manager.get_or_create("t", 0, ZERO_UUID, log_config())
    log.append_as_leader(sequenced(7, 0, 0), 0, NOW_MS)
    log.producers.begin_to_lead(NOW_MS, knows_all=True)
    log.producers.await_sequence(8, 0, 0)
    moved = moved_log(manager)
    for producer_id, sequence in ((8, 1), (7, 2), (9, 1)):  # after a refusal here; after others by the leader before
        with pytest.raises(KafkaError) as raised:
            moved.append_as_leader(sequenced(producer_id, 0, sequence), 0, NOW_MS)
        assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    for sequence in (0, 1):
        moved.append_as_leader(sequenced(8, 0, sequence), 0, NOW_MS)
