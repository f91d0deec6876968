"""Checkpoint plans: what is written, in which order, and how durable."""

from __future__ import annotations

import errno

import pytest

from gregor.storage.folders.checkpoint_plan import MAX_SINGLE_SYNCS, CheckpointOrder, CheckpointPlan
from gregor.storage.folders.checkpoints import parse_offsets
from tests.storage.memory_files import MemoryFiles


def files_with(*paths: str) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/data/t-0")
    for path in paths:
        files.write_atomically(path, b"id", sync=False)
    return files


def test_contents_are_those_of_the_plan_and_durable() -> None:
    files = files_with()
    plan = CheckpointPlan(files, CheckpointOrder(), {"/data/a": b"1", "/data/b": b"2"})
    assert not files.exists("/data/a")
    plan.run()
    files.crash()
    assert (files.read_bytes("/data/a"), files.read_bytes("/data/b")) == (b"1", b"2")
    assert plan.done


def test_without_sync_only_the_process_may_crash() -> None:
    files = files_with()
    CheckpointPlan(files, CheckpointOrder(), {"/data/a": b"1"}).run(sync=False)
    assert files.read_bytes("/data/a") == b"1"
    assert files.calls["sync"] == files.calls["sync_directory"] == 0
    files.crash()
    assert not files.exists("/data/a")


def test_a_late_plan_does_not_undo_a_younger_one() -> None:
    files, order = files_with(), CheckpointOrder()
    old = CheckpointPlan(files, order, {"/data/a": b"old", "/data/b": b"old"})
    young = CheckpointPlan(files, order, {"/data/a": b"young"})
    young.run()
    old.run()
    assert (files.read_bytes("/data/a"), files.read_bytes("/data/b")) == (b"young", b"old")


def test_small_files_and_folders_are_synced_with_it() -> None:
    path = "/data/t-0/partition.metadata"
    files = files_with(path)
    CheckpointPlan(files, CheckpointOrder(), {}, [path], ["/data/t-0"]).run()
    files.crash()
    assert files.read_bytes(path) == b"id"


def many_small_files(folder: str) -> list[str]:
    return [f"{folder}/t-{number}/partition.metadata" for number in range(MAX_SINGLE_SYNCS + 1)]


def files_with_many(*folders: str) -> MemoryFiles:
    files = MemoryFiles()
    for folder in folders:
        for path in many_small_files(folder):
            files.make_directory(path.rpartition("/")[0])
            files.write_atomically(path, b"id", sync=False)
    return files


def test_many_small_files_are_synced_with_their_file_system() -> None:
    files = files_with_many("/data")
    CheckpointPlan(files, CheckpointOrder(), {}, many_small_files("/data")).run()
    assert files.calls["sync_everything"] == 1
    assert files.calls["sync"] == 0
    files.crash()
    assert all(files.read_bytes(path) == b"id" for path in many_small_files("/data"))


def test_without_sync_many_small_files_wait_for_the_next_plan() -> None:
    files = files_with_many("/data")
    CheckpointPlan(files, CheckpointOrder(), {}, many_small_files("/data")).run(sync=False)
    assert files.calls["sync_everything"] == 0


def test_many_small_files_are_synced_one_by_one_where_the_system_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_with_many("/data")
    monkeypatch.setattr(files, "sync_everything", lambda _path: False)
    CheckpointPlan(files, CheckpointOrder(), {}, many_small_files("/data")).run()
    assert files.calls["sync"] == MAX_SINGLE_SYNCS + 1


def test_file_system_that_cannot_be_synced_fails_its_folder_alone() -> None:
    files = files_with_many("/data")
    files.make_directory("/more")
    files.fail("sync_everything")
    plan = CheckpointPlan(files, CheckpointOrder(), {"/more/a": b"1"}, many_small_files("/data"))
    assert list(plan.run()) == ["/data"]
    assert files.read_bytes("/more/a") == b"1"
    assert not plan.done


def test_what_was_removed_meanwhile_is_passed_over() -> None:
    files = files_with()
    CheckpointPlan(files, CheckpointOrder(), {"/data/a": b"1"}, ["/data/t-9/partition.metadata"]).run()
    assert files.read_bytes("/data/a") == b"1"


def test_a_failure_is_returned_and_the_plan_not_done() -> None:
    files, order = files_with(), CheckpointOrder()
    plan = CheckpointPlan(files, order, {"/data/a": b"1"})
    files.fail("write_atomically")
    assert str(plan.run()["/data"]).endswith("made to fail")
    assert not plan.done
    CheckpointPlan(files, order, {"/data/a": b"2"}).run()
    plan.run()
    assert files.read_bytes("/data/a") == b"2"


def test_a_folder_that_fails_keeps_the_others_from_nothing() -> None:
    files = files_with()
    files.make_directory("/more")
    files.break_folder("/data", OSError(errno.EIO, "broken"))
    contents = {"/data/a": b"1", "/data/b": b"1", "/more/a": b"1"}
    errors = CheckpointPlan(files, CheckpointOrder(), contents, ["/data/t-0/x"], ["/data", "/more"]).run()
    assert {folder: error.errno for folder, error in errors.items()} == {"/data": errno.EIO}
    assert files.read_bytes("/more/a") == b"1"


def test_a_folder_that_is_gone_is_a_failure() -> None:
    assert list(CheckpointPlan(files_with(), CheckpointOrder(), {"/gone/a": b"1"}).run()) == ["/gone"]


def test_offsets_that_stand_are_not_written_again() -> None:
    files, order = files_with(), CheckpointOrder()

    def write(offset: int, *, sync: bool = True) -> int:
        before = files.calls["write_atomically"]
        CheckpointPlan(files, order, {"/data/a": {("t", 0): offset}}).run(sync=sync)
        assert parse_offsets(files.read_bytes("/data/a"), "a") == {("t", 0): offset}
        return files.calls["write_atomically"] - before

    assert [write(1), write(1), write(2, sync=False), write(2, sync=False), write(2), write(2)] == [1, 0, 1, 0, 1, 0]
    files.crash()
    assert parse_offsets(files.read_bytes("/data/a"), "a") == {("t", 0): 2}


def test_after_a_failed_write_nothing_is_taken_to_stand() -> None:
    files, order = files_with(), CheckpointOrder()
    CheckpointPlan(files, order, {"/data/a": {("t", 0): 1}}).run()
    files.fail("write_atomically")
    assert CheckpointPlan(files, order, {"/data/a": {("t", 0): 2}}).run()
    assert order.offsets_written == {}
