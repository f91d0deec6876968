"""A compacted segment replaces others: after a crash at any step, either the old ones or the new one exist; and the log
refuses the swap after any other change in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.records.batch import build_batch
from gregor.storage.cleaner.cleaner import CleanedGroup, CleaningRun
from gregor.storage.folders.manager import LogManager
from gregor.storage.log.log import Log
from gregor.storage.log.swap import LogChanged, SwapPlan, unlink_unfinished
from gregor.storage.segment.leftovers import tidy_folder
from gregor.storage.segment.segment import Segment
from tests.storage.compacting import all_records, compact, consumed_offsets, job_for, live_producers
from tests.storage.logs import DIRECTORY, NOW_MS, log_config, open_log
from tests.storage.memory_files import MemoryFiles
from tests.storage.test_crash_points import Crash, CrashingFiles

LIMITS = {"segment_bytes": 300, "index_interval_bytes": 100, "cleanup_policy": frozenset(["compact"])}
CONFIG = log_config(**LIMITS)


def fill(log: Log, count: int = 12, producer_id: int = 7) -> None:
    for number in range(count):
        sequence = log.producers.entries[producer_id].next_sequence if producer_id in log.producers.entries else 0
        pair = (b"key-%d" % (number % 3), b"value-%d" % log.log_end_offset)
        log.append_as_leader(
            build_batch([pair], timestamp_ms=NOW_MS, producer_id=producer_id, producer_epoch=0, base_sequence=sequence),
            1,
            NOW_MS,
        )
    log.offsets.restore_high_watermark(log.log_end_offset)


def filled(files: MemoryFiles) -> Log:
    log = open_log(files, **LIMITS)
    fill(log)
    log.roll(NOW_MS)
    return log


def cleaned(files: MemoryFiles, log: Log) -> tuple[CleanedGroup, list[Segment]]:
    """Return the last group of a run; a swap of it does not change the first segments."""
    run = CleaningRun(files, job_for(log, NOW_MS, segment_bytes=500), live_producers(log))
    run.build_map()
    group = run.groups()[-1]
    assert len(group) > 1
    result = run.clean(group)
    return result, [one for one in log.segments if one.base_offset in result.sources]


def begun(files: MemoryFiles, log: Log) -> SwapPlan:
    result, sources = cleaned(files, log)
    return log.swap.begin(result.base_offset, result.size_bytes, sources, log.generation)


def names(files: MemoryFiles, *suffixes: str) -> list[str]:
    return sorted(entry.name for entry in files.list_directory(DIRECTORY) if entry.name.endswith(suffixes))


def test_the_new_segment_stands_where_the_old_ones_stood() -> None:
    files = MemoryFiles()
    log = filled(files)
    before = [one.base_offset for one in log.segments]
    plan = begun(files, log)
    assert len(names(files, ".swap")) == 3
    paths = log.swap.finish(plan)
    bases = [one.base_offset for one in plan.sources]
    assert [one.base_offset for one in log.segments] == [one for one in before if one not in bases[1:]]
    assert names(files, ".swap", ".cleaned") == []
    # Of each old segment three files, and a producer snapshot of all but the first.
    assert sorted(path.rsplit("/", 1)[1] for path in paths) == names(files, ".deleted")
    assert len(paths) == 4 * len(bases) - 1
    assert log.flusher.plan(NOW_MS) is not None, "the folder has changed"


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.truncate_to(log.segments[-2].base_offset + 1, NOW_MS),
        lambda log: log.truncate_fully_and_start_at(3, NOW_MS),
        lambda log: log.retention.delete_segments(len(log.segments) - 1, NOW_MS),
    ],
)
def test_a_log_that_changed_keeps_what_it_has(change: Callable[[Log], None]) -> None:
    files = MemoryFiles()
    log = filled(files)
    plan = begun(files, log)
    change(log)
    before = all_records(log)
    with pytest.raises(LogChanged):
        log.swap.finish(plan)
    for path in log.swap.discard(plan):
        files.unlink(path)
    assert names(files, ".swap", ".cleaned") == []
    assert all_records(log) == before

    result_names = names(files)
    with pytest.raises(LogChanged):
        log.swap.begin(plan.base_offset, plan.size_bytes, plan.sources, plan.generation)
    assert names(files) == result_names


def test_appends_and_rolls_change_nothing() -> None:
    files = MemoryFiles()
    log = filled(files)
    plan = begun(files, log)
    fill(log)
    log.swap.finish(plan)
    assert consumed_offsets(log)[-12:] == list(range(12, 24))


@pytest.mark.parametrize("offset", [1, 7, 0])
@pytest.mark.parametrize("machine", [False, True], ids=["process", "machine"])
def test_a_crash_behind_a_truncation_brings_nothing_back(offset: int, machine: bool) -> None:
    """Between begin and finish: a start must not put in what was made of records that are truncated by then."""
    files = MemoryFiles()
    log = filled(files)
    log.flusher.flush()
    plan = begun(files, log)
    plan.sync()
    if offset:
        log.truncate_to(offset)
    else:
        log.truncate_fully_and_start_at(5)
    assert names(files, ".swap") == []
    if machine:
        log.flusher.flush()
        files.crash()
    tidy_folder(files, DIRECTORY)  # as a start does
    again = open_log(files, **LIMITS)
    assert again.log_end_offset == (offset or 5)
    assert not offset or [record.offset for record in all_records(again)] == list(range(offset))
    with pytest.raises(LogChanged):
        log.swap.finish(plan)
    assert log.swap.discard(plan) == []


def test_a_truncation_after_a_swap_touches_only_what_is_there() -> None:
    files = MemoryFiles()
    log = filled(files)
    plan = begun(files, log)
    log.swap.finish(plan)
    synced = files.calls["sync_directory"]
    log.truncate_to(11)
    assert files.calls["sync_directory"] == synced
    assert log.log_end_offset == 11


def test_two_segments_of_one_offset_wait_for_their_deletion_each_under_its_own_name() -> None:
    files = MemoryFiles()
    log = filled(files)
    first = log.swap.finish(begun(files, log))
    contents = {path: files.read_bytes(path) for path in first}
    segment = log.segments[next(i for i, one in enumerate(log.segments) if f"{one.base_offset:020d}.log" in first[0])]
    second = segment.mark_deleted()
    assert not set(first) & set(second)
    assert {path: files.read_bytes(path) for path in first} == contents
    assert all(path.endswith(".deleted") for path in second)
    assert sum(path.endswith(".log.deleted") for path in second) == 1
    open_log(files, **LIMITS)
    assert names(files, ".deleted") == sorted(path.rpartition("/")[2] for path in (*first, *second))
    sizes, garbage = tidy_folder(files, DIRECTORY)
    assert set(garbage) == {*first, *second}
    assert not any(name.endswith(".deleted") for name in sizes)


def test_a_folder_that_is_gone() -> None:
    files = MemoryFiles()
    log = filled(files)
    plan = begun(files, log)
    files.rename(DIRECTORY, "/data/orders-0.deleted")
    assert log.swap.discard(plan) == []


def test_a_failed_rename_takes_the_log_offline_and_a_start_goes_on() -> None:
    files = MemoryFiles()
    log = filled(files)
    expected = {record.key: record.value for record in all_records(log)}
    plan = begun(files, log)
    files.fail("rename", after=2)
    with pytest.raises(KafkaError, match="cannot replace"):
        log.swap.finish(plan)
    assert log.offline
    manager = LogManager(BrokerConfig({"log.dirs": "/data"}), files, lambda: NOW_MS)
    (again,) = [one for one in manager.load(lambda topic: CONFIG) if one is not None]
    assert {record.key: record.value for record in all_records(again)} == expected
    assert names(files, ".swap") == []


def test_what_a_stopped_worker_left_goes() -> None:
    files = MemoryFiles()
    log = filled(files)
    cleaned(files, log)
    assert len(names(files, ".cleaned")) == 3
    unlink_unfinished(files, DIRECTORY)
    assert names(files, ".cleaned") == []


def test_retention_waits_for_a_compaction() -> None:
    files = MemoryFiles()
    log = open_log(files, **{**LIMITS, "cleanup_policy": frozenset(["compact", "delete"])}, retention_ms=1000)
    fill(log)
    log.roll(NOW_MS)
    log.work.begin_cleaning()
    assert log.retention.delete_due(NOW_MS + 2000) == []
    log.work.end_cleaning()
    assert log.retention.delete_due(NOW_MS + 2000) != []


def test_truncation_takes_the_cleaned_offset_along() -> None:
    log = filled(MemoryFiles())
    log.offsets.mark_cleaned_to(10)
    log.truncate_to(11)
    assert log.offsets.cleaned_offset == 10
    log.truncate_to(4)
    assert log.offsets.cleaned_offset == 4


# Crashes


def live(files: PromisingFiles) -> dict[bytes | None, bytes | None]:
    """Run a broker with two compactions; return the last values. Promised values are synced at once."""
    manager = LogManager(BrokerConfig({"log.dirs": "/data"}), files, lambda: NOW_MS)
    for _ in manager.load(lambda topic: CONFIG):
        pass
    log = manager.get_or_create("orders", 0, ZERO_UUID, CONFIG)
    for _ in range(2):
        fill(log)
        log.roll(NOW_MS)
        log.flusher.flush(NOW_MS)
        manager.checkpoints.write_all()
        values = {record.key: record.value for record in all_records(log)}
        files.promised = values
        compact(files, log, NOW_MS, segment_bytes=500)
        manager.checkpoints.write_all()
    return values


class PromisingFiles(CrashingFiles):
    promised: dict[bytes | None, bytes | None]


@pytest.mark.parametrize("machine", [False, True])
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.very_slow])])
def test_any_crash_leaves_every_last_value(every: int, machine: bool) -> None:
    whole = PromisingFiles()
    live(whole)
    crashed_in_swap = 0
    for crash_at in range(0, whole.steps, every):
        files = PromisingFiles(crash_at, torn=True)
        files.promised = {}
        with pytest.raises(Crash):
            live(files)
        files.crash_at = -1
        crashed_in_swap += any(".swap" in entry.name for entry in listed(files))
        if machine:
            files.crash()
        for _ in range(2):  # a start, and one after the crash of that
            manager = LogManager(BrokerConfig({"log.dirs": "/data"}), files, lambda: NOW_MS)
            logs = [one for one in manager.load(lambda topic: CONFIG) if one is not None]
            assert manager.failed == {}
            if not files.promised:
                break
            (log,) = logs
            found = {record.key: record.value for record in all_records(log)}
            # Nothing older than what was promised; appends since then may be there, too.
            assert found.keys() == files.promised.keys()
            assert all(number(found[key]) >= number(files.promised[key]) for key in found)
            assert consumed_offsets(log) == [record.offset for record in all_records(log)]
            assert log.producers.entries[7].next_sequence == log.log_end_offset
            assert not [entry for entry in listed(files) if entry.name.endswith((".swap", ".cleaned"))]
            assert log.offsets.cleaned_offset is None or log.offsets.cleaned_offset <= log.log_end_offset
    assert crashed_in_swap > 0


def listed(files: MemoryFiles) -> list:  # type: ignore[type-arg]
    return files.list_directory("/data/orders-0") if files.exists("/data/orders-0") else []


def number(value: bytes | None) -> int:
    assert value is not None
    return int(value.removeprefix(b"value-"))
