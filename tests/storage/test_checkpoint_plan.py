"""Checkpoint plans: what is written, in which order, and how durable."""

from __future__ import annotations

import pytest

from storage.checkpoint_plan import CheckpointOrder, CheckpointPlan
from storage.memory_files import MemoryFiles


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


def test_what_was_removed_meanwhile_is_passed_over() -> None:
    files = files_with()
    CheckpointPlan(files, CheckpointOrder(), {"/data/a": b"1"}, ["/data/t-9/partition.metadata"]).run()
    assert files.read_bytes("/data/a") == b"1"


def test_a_failure_is_raised_and_the_plan_not_done() -> None:
    files, order = files_with(), CheckpointOrder()
    plan = CheckpointPlan(files, order, {"/data/a": b"1"})
    files.fail("write_atomically")
    with pytest.raises(OSError, match="made to fail"):
        plan.run()
    assert not plan.done
    assert not order.lock.locked()
    CheckpointPlan(files, order, {"/data/a": b"2"}).run()
    plan.run()
    assert files.read_bytes("/data/a") == b"2"
