"""The table of logs: those that are marked for a check of flushes; and NewFolders: folders that are made in advance, on
a thread, for logs that are about to be created.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gregor.protocol.errors import KafkaError
from gregor.protocol.ids import ZERO_UUID, uuid_from_text
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import run_all
from gregor.storage.folders import checkpoint_contents, log_table
from gregor.storage.folders.log_table import NewPartition
from gregor.storage.folders.manager import LogManager
from gregor.storage.log import truncate
from gregor.storage.log.log import Log
from tests.replication.replicas import leader_of
from tests.storage.checkpoints import write_high_watermarks
from tests.storage.folders.test_manager import SMALL_SEGMENTS, new_manager, started
from tests.storage.logs import NOW_MS, batch, log_config, sequenced
from tests.storage.memory_files import MemoryFiles

TOPIC_ID = uuid_from_text("ST_DYboMSwu29fD6Z_eltQ")
COUNT = 5


def wanted(leader_epoch: int, topic_id: Any = TOPIC_ID) -> list[NewPartition]:
    return [NewPartition(TopicPartition("t", index), topic_id, leader_epoch) for index in range(COUNT)]


def create(manager: LogManager, leader_epoch: int, topic_id: Any = TOPIC_ID) -> list[Log]:
    logs = [manager.get_or_create("t", index, topic_id, SMALL_SEGMENTS) for index in range(COUNT)]
    for log in logs:
        if leader_epoch >= 0:
            log.assign_epoch(leader_epoch, 0)
    return logs


def contents(files: MemoryFiles) -> dict[str, bytes]:
    found = {}
    for folder in ("/data", "/more"):
        for entry in files.list_directory(folder):
            for inner in files.list_directory(f"{folder}/{entry.name}") if entry.is_directory else ():
                path = f"{folder}/{entry.name}/{inner.name}"
                found[path] = files.read_bytes(path)
    return found


@pytest.mark.parametrize("topic_id", [TOPIC_ID, ZERO_UUID])
@pytest.mark.parametrize("leader_epoch", [-1, 0, 3])
def test_folders_made_in_advance_hold_what_the_creation_of_a_log_makes(leader_epoch: int, topic_id: Any) -> None:
    plain, ahead = MemoryFiles(), MemoryFiles()
    other, manager = (new_manager(files, "/data", "/more") for files in (plain, ahead))
    expected = create(other, leader_epoch, topic_id)
    manager.plan_folders(wanted(leader_epoch, topic_id))()
    assert contents(ahead) == contents(plain)
    ahead.calls.clear()
    logs = create(manager, leader_epoch, topic_id)
    manager.discard_folders()
    assert not {call for call in ahead.calls if call in ("create", "write_atomically", "rename", "unlink")}
    assert contents(ahead) == contents(plain)
    assert [log.directory for log in logs] == [log.directory for log in expected]
    for files, some, of in ((plain, expected, other), (ahead, logs, manager)):
        for log in some:
            log.append_as_leader(batch(1), max(leader_epoch, 0), NOW_MS)
            log.flusher.flush(NOW_MS)
        assert not run_all(of.checkpoints.recovery_points())()  # it syncs the topic ids, too
        files.crash()  # all that is not synced is lost
    assert contents(ahead) == contents(plain)
    again = started(ahead, "/data", "/more")
    assert {key: log.log_end_offset for key, log in again.logs.items()} == {("t", index): 1 for index in range(COUNT)}
    assert [log.topic_id for log in again.logs.values()] == [topic_id] * COUNT


def test_a_folder_that_cannot_be_made_is_made_with_its_log() -> None:
    files = MemoryFiles()
    manager = new_manager(files, "/data", "/more")
    call = manager.plan_folders(wanted(0))
    files.fail("write_atomically", after=9, error=OSError(errno.EIO, "broken"))
    call()
    files.clear_faults()
    made = {path.split("/")[2] for path in contents(files)}
    assert made == {"t-0"}
    assert len(create(manager, 0)) == COUNT
    assert {path.split("/")[2] for path in contents(files)} == {f"t-{index}" for index in range(COUNT)}


def test_folders_of_partitions_that_are_not_created_go() -> None:
    files = MemoryFiles()
    manager = new_manager(files, "/data", "/more")
    kept = manager.get_or_create("t", 1, TOPIC_ID, SMALL_SEGMENTS)
    manager.plan_folders(wanted(0))()
    other = manager.get_or_create("t", 3, ZERO_UUID, SMALL_SEGMENTS)
    manager.discard_folders()
    assert {path.rpartition("/")[0] for path in contents(files)} == {kept.directory, other.directory}
    assert manager.get_or_create("t", 1, TOPIC_ID, SMALL_SEGMENTS) is kept
    assert len(create(manager, 0)) == COUNT


def test_without_a_data_folder_nothing_is_planned() -> None:
    files = MemoryFiles()
    manager = new_manager(files, "/data")
    manager.fail_folder(manager.folders[0], OSError(errno.EIO, "broken"))
    manager.plan_folders(wanted(0))()
    assert files.list_directory("/data") == []


def test_a_partition_that_is_wanted_in_another_folder_leaves_nothing_behind() -> None:
    files = MemoryFiles()
    manager = new_manager(files, "/data", "/more")
    manager.plan_folders(wanted(0))()
    manager.moves.prefer(TopicPartition("t", 0), manager.folders[1])
    assert create(manager, 0)[0].directory == "/more/t-0"
    assert not files.exists("/data/t-0")


class HeldFiles(MemoryFiles):
    """Files of which one folder is made only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = threading.Event(), threading.Event()

    def make_directory(self, path: str) -> None:
        if path.endswith("t-2"):
            self.begun.set()
            assert self.released.wait(30)
        super().make_directory(path)


def while_a_thread_makes_folders(files: HeldFiles, call: Callable[[], None], work: Callable[[], object]) -> None:
    """Begin `work` on a thread of its own while another one makes the third folder; return when both are done."""
    threads = [threading.Thread(target=call), threading.Thread(target=work)]
    threads[0].start()
    assert files.begun.wait(30)
    threads[1].start()
    files.released.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_creation_that_is_cancelled_while_a_thread_makes_folders_leaves_none() -> None:
    files = HeldFiles()
    manager = new_manager(files, "/data", "/more")
    call = manager.plan_folders(wanted(0))
    while_a_thread_makes_folders(files, call, manager.discard_folders)
    assert contents(files) == {}
    call()
    assert contents(files) == {}, "also if the thread begins after the end"
    assert len(create(manager, 0)) == COUNT


def test_log_that_is_created_while_a_thread_makes_and_removes_folders_keeps_its_own() -> None:
    files = HeldFiles()
    manager = new_manager(files, "/data", "/more")
    logs: list[Log] = []

    def cancel_and_create() -> None:
        manager.discard_folders()
        logs.extend(create(manager, 0))

    while_a_thread_makes_folders(files, manager.plan_folders(wanted(0)), cancel_and_create)
    assert len(logs) == COUNT
    manager.discard_folders()
    assert {path.rpartition("/")[0] for path in contents(files)} == {log.directory for log in logs}
    for log in logs:
        log.append_as_leader(batch(1), 0, NOW_MS)
        assert log.log_end_offset == 1


def checkpoint(files: MemoryFiles) -> str:
    """The lines of both folders."""
    return "".join(files.read_bytes(f"{one}/replication-offset-checkpoint").decode() for one in ("/data", "/more"))


def failing(*_arguments: object, **_more: object) -> None:
    raise OSError(errno.EIO, "broken")


def marked(manager: LogManager) -> list[int]:
    return [log.partition for log in manager.logs.marked()]


def fill(log: Log) -> None:
    for sequence in range(6):
        log.append_as_leader(sequenced(7, 0, sequence), 0, NOW_MS)


def test_a_log_is_marked_for_the_check_of_flushes_until_none_is_needed() -> None:
    manager = new_manager(MemoryFiles(), "/data", "/more")
    logs = create(manager, 0)
    for log in logs:
        fill(log)
        log.flusher.flush(NOW_MS)
    assert marked(manager) == []
    logs[1].roll(NOW_MS)
    logs[2].configure(log_config(flush_ms=1000))
    logs[3].truncate_to(4)
    assert sorted(marked(manager)) == [1, 2, 3]
    for log in logs:
        log.flusher.flush(NOW_MS)
    assert sorted(marked(manager)) == [2, 3], "flush.ms stays; a checkpoint has to withdraw the recovery point of 3"
    assert logs[3].offsets.acknowledge_lower_recovery_point()
    logs[2].configure(log_config())
    assert marked(manager) == []


def test_a_truncation_that_fails_leaves_a_mark() -> None:
    """Its recovery point may have fallen: a checkpoint must not keep the one from before."""
    files = MemoryFiles()
    manager = new_manager(files, "/data", "/more")
    log = create(manager, 0)[1]
    fill(log)
    log.flusher.flush(NOW_MS)
    assert marked(manager) == []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truncate, "replay_producers", failing)
        with pytest.raises(KafkaError):
            log.truncate_to(4)
    assert log.offsets.recovery_point_fell
    assert marked(manager) == [1]


def test_high_watermarks_are_written_when_one_has_moved() -> None:
    files = MemoryFiles()
    manager = new_manager(files, "/data", "/more")
    logs = create(manager, 0)
    assert write_high_watermarks(manager) == {}
    assert write_high_watermarks(manager) is None
    for log in logs:
        fill(log)
    assert write_high_watermarks(manager) is None, "an append moves none"
    leader = leader_of(logs[1], [0])
    leader.append(sequenced(7, 0, 6), NOW_MS, 1)
    assert write_high_watermarks(manager) == {}
    assert "t 1 7" in checkpoint(files)
    logs[1].truncate_to(3)
    assert write_high_watermarks(manager) == {}
    assert "t 1 3" in checkpoint(files)
    assert write_high_watermarks(manager) is None
    manager.remove("t", 1)
    assert write_high_watermarks(manager) == {}
    assert "t 1 " not in checkpoint(files)
    assert write_high_watermarks(manager) is None


def test_high_watermarks_are_written_again_after_a_failure() -> None:
    files = MemoryFiles()
    manager = new_manager(files, "/data", "/more")
    log = create(manager, 0)[0]
    assert write_high_watermarks(manager) == {}
    fill(log)
    log.offsets.set_high_watermark(6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "write_atomically", failing)
        assert write_high_watermarks(manager)
    assert write_high_watermarks(manager) == {}
    assert "t 0 6" in checkpoint(files)


def test_a_move_between_the_steps_of_a_gathering_is_written_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (log_table, checkpoint_contents):
        monkeypatch.setattr(module, "ITEMS_PER_STEP", 1)
    files = MemoryFiles()
    manager = new_manager(files, "/data", "/more")
    logs = create(manager, 0)
    steps = manager.checkpoints.high_watermarks()
    for _ in range(COUNT + 3):
        next(steps)  # all are acknowledged, and three are visited
    for log in logs:
        fill(log)
        log.offsets.set_high_watermark(5)
    write = run_all(steps)
    assert write is not None and write() == {}
    assert write_high_watermarks(manager) == {}
    assert all(f"t {log.partition} 5" in checkpoint(files) for log in logs)


def test_a_log_is_marked_from_the_moment_it_is_served() -> None:
    files = MemoryFiles()
    manager = new_manager(files, "/data", "/more")
    manager.get_or_create("t", 0, TOPIC_ID, log_config(flush_ms=1000))
    assert marked(manager) == [0]
    manager.remove("t", 0)
    assert marked(manager) == []
