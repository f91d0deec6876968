"""Compaction in a whole broker, with real worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs.log_cleaner import CleaningResult
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from gregor.storage.log.log import Log
from tests.broker.harness import Harness, errors, running

QUICK = {"log_cleaner_backoff_ms": "20", "log_index_interval_bytes": "200"}
TABLE = {"cleanup_policy": "compact", "internal_segment_bytes": "2000"}

pytestmark = pytest.mark.slow


def fill(harness: Harness, topic: str, count: int, keys: int = 5, first: int = 0) -> dict[bytes, bytes]:
    """Produces so many records over few keys; returns the last value of each."""
    last = {}
    for number in range(first, first + count):
        key, value = b"key-%d" % (number % keys), b"%d " % number + b"x" * 50
        assert harness.produce(topic, (key, value)).error_code == 0  # type: ignore[arg-type]
        last[key] = value
    return last


def contents(harness: Harness, topic: str) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in harness.records(topic)}


def log_of(harness: Harness, topic: str) -> Log:
    return harness.broker.logs.logs[topic, 0]


def compact(harness: Harness, topic: str) -> CleaningResult:
    return harness.run(harness.node.cleaner.compact_now(log_of(harness, topic)))


def is_clean(log: Log) -> bool:
    return log.offsets.cleaned_offset is not None and log.dirty_range(0).cleanable_bytes == 0 and not log.work.cleaning


def test_a_compacted_topic_is_cleaned(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("table", **TABLE)
        harness.create_topic("events", internal_segment_bytes="2000")
        last = fill(harness, "table", 200)
        fill(harness, "events", 100)
        log = log_of(harness, "table")
        harness.until(lambda: is_clean(log))
        assert log.size_bytes < 200 * 120 / 4, "200 batches of some 130 bytes each were written"
        assert contents(harness, "table") == last
        assert log.log_end_offset == 200
        assert len(harness.records("events")) == 100, "what is not compacted is left alone"
        cleaned_offset = log.offsets.cleaned_offset
        checkpoint = tmp_path / "cleaner-offset-checkpoint"
        harness.until(lambda: f"table 0 {cleaned_offset}" in checkpoint.read_text())
        assert "events" not in checkpoint.read_text()
    with running(tmp_path, **QUICK) as harness:
        assert log_of(harness, "table").offsets.cleaned_offset == cleaned_offset
        assert contents(harness, "table") == last
        fill(harness, "table", 3)


def test_the_checkpoint_forgets_a_deleted_topic(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("table", **TABLE)
        fill(harness, "table", 100)
        harness.until(lambda: is_clean(log_of(harness, "table")))
        topics = [DeleteTopicsRequest.DeleteTopicState(name="table")]
        harness.ask(DeleteTopicsRequest(topics=topics, topic_names=["table"], timeout_ms=30_000), 6)
        harness.until(lambda: ("table", 0) not in harness.broker.logs.logs)
        harness.create_topic("table", **TABLE)
        assert log_of(harness, "table").offsets.cleaned_offset is None
    assert "table" not in (tmp_path / "cleaner-offset-checkpoint").read_text()


def test_compact_and_delete(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("table", **{**TABLE, "cleanup_policy": "compact,delete", "retention_bytes": "0"})
        fill(harness, "table", 100)
        log = log_of(harness, "table")
        harness.until(lambda: is_clean(log) and log.log_start_offset > 0)
        assert log.segments_count == 1, "retention follows a compaction"


def test_a_log_that_is_not_dirty_enough_waits_and_an_order_does_not(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("table", **TABLE, min_cleanable_dirty_ratio="1.0")
        last = fill(harness, "table", 100)
        log = log_of(harness, "table")
        harness.turn(50)
        assert log.offsets.cleaned_offset is None
        log.roll(0)
        result = compact(harness, "table")
        assert result.cleaned
        assert (result.records_read, result.records_kept) == (100, 5)
        assert log.offsets.cleaned_offset == 100
        assert contents(harness, "table") == last
        assert not compact(harness, "table").cleaned


def test_no_worker_runs_where_there_is_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.broker.jobs.log_cleaner.IDLE_WORKER_S", 0.05)
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("table", **TABLE)
        harness.turn(50)
        assert harness.node.cleaner.worker_pids() == []
        fill(harness, "table", 100)
        harness.until(lambda: is_clean(log_of(harness, "table")))
        harness.until(lambda: harness.node.cleaner.worker_pids() == [])


def test_the_cleaner_can_be_switched_off(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK, log_cleaner_enable="false") as harness:
        harness.create_topic("table", **TABLE)
        fill(harness, "table", 100)
        harness.turn(50)
        assert log_of(harness, "table").offsets.cleaned_offset is None
        assert compact(harness, "table").cleaned, "an order is carried out all the same"


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    """kill -9 in the middle of a job: the files of before are served, and the next worker does it."""
    # The job lasts most of a second, so that its unfinished file is seen.
    with running(tmp_path, **QUICK, log_cleaner_io_max_bytes_per_second="100000") as harness:
        harness.create_topic("table", **TABLE, min_cleanable_dirty_ratio="1.0")
        last = fill(harness, "table", 300)
        log, cleaner = log_of(harness, "table"), harness.node.cleaner
        order = harness.loop.create_task(cleaner.compact_now(log))
        harness.until(lambda: bool(list(Path(log.directory).glob("*.cleaned"))))
        for pid in cleaner.worker_pids():
            os.kill(pid, signal.SIGKILL)
        result = harness.run(order)
        assert not result.cleaned
        assert "status -9" in result.reason
        assert list(Path(log.directory).glob("*.cleaned")) == []
        assert contents(harness, "table") == last
        assert cleaner.trouble(log) is not None

        harness.alter_topic("table", min_cleanable_dirty_ratio="0")
        harness.until(lambda: is_clean(log))
        assert contents(harness, "table") == last
        assert cleaner.trouble(log) is None


def test_a_log_that_cannot_be_compacted_is_left_alone_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, **QUICK) as harness:
        for name in ("bad", "good"):
            harness.create_topic(name, **TABLE, min_cleanable_dirty_ratio="1.0")
            fill(harness, name, 100)
        bad, good, cleaner = log_of(harness, "bad"), log_of(harness, "good"), harness.node.cleaner
        path = Path(bad.segments[0].log.path)
        sound = path.read_bytes()
        path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
        for name in ("bad", "good"):
            harness.alter_topic(name, min_cleanable_dirty_ratio="0")
        harness.until(lambda: is_clean(good) and cleaner.trouble(bad) is not None)
        harness.turn(50)
        assert caplog.text.count("bad-0 cannot be compacted, compaction skips it: wrong checksum") == 1
        assert bad.offsets.cleaned_offset is None
        assert not bad.work.cleaning
        path.write_bytes(sound)
        assert compact(harness, "bad").cleaned, "an order tries again"
        assert cleaner.trouble(bad) is None


def test_a_log_over_which_workers_die_is_skipped_after_three_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gregor.broker.jobs.cleaner_process.WORKER", "no.such.module")
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("table", **TABLE)
        fill(harness, "table", 60)
        cleaner, log = harness.node.cleaner, log_of(harness, "table")
        harness.until(lambda: cleaner.skips(log))
        assert caplog.text.count("table-0 was not compacted, another attempt follows") == 2
        assert caplog.text.count("table-0 cannot be compacted, compaction skips it") == 1
        assert "status 1" in str(cleaner.trouble(log))


def test_a_topic_may_go_away_while_it_is_compacted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("table", **TABLE, min_cleanable_dirty_ratio="1.0")
        fill(harness, "table", 300)
        log = log_of(harness, "table")
        order = harness.loop.create_task(harness.node.cleaner.compact_now(log))
        harness.until(lambda: log.work.cleaning)
        topics = [DeleteTopicsRequest.DeleteTopicState(name="table")]
        harness.ask(DeleteTopicsRequest(topics=topics, topic_names=["table"], timeout_ms=30_000), 6)
        assert not harness.run(order).cleaned
    assert "Traceback" not in caplog.text


def test_a_stop_in_the_middle_of_a_compaction(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("table", **TABLE, min_cleanable_dirty_ratio="1.0")
        last = fill(harness, "table", 300)
        log = log_of(harness, "table")
        order = harness.loop.create_task(harness.node.cleaner.compact_now(log))
        harness.until(lambda: bool(harness.node.cleaner.worker_pids()))
        pids = harness.node.cleaner.worker_pids()
    assert order.result().reason == "the broker stops" or order.result().cleaned
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with running(tmp_path, **QUICK) as harness:
        assert contents(harness, "table") == last


def test_a_live_switch_to_compact_refuses_null_keys_on_every_way(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("t", internal_segment_bytes="2000")
        assert harness.produce("t", b"no key").error_code == 0
        harness.alter_topic("t", cleanup_policy="compact")
        assert errors(harness.produce("t", b"no key").error_code) == ["INVALID_RECORD"]
        fill(harness, "t", 100)
        log = log_of(harness, "t")
        harness.until(lambda: is_clean(log))
        assert None not in contents(harness, "t"), "the record without a key is dropped"
        harness.alter_topic("t", cleanup_policy="delete")
        assert harness.produce("t", b"no key").error_code == 0


def find_coordinator(harness: Harness, group: str) -> None:
    """As a client does before anything else; it makes the topic, and waits until it is loaded."""

    def loaded() -> bool:
        harness.ask(FindCoordinatorRequest(key=group), 0)
        return harness.ask(HeartbeatRequest(group_id=group, member_id="m"), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    harness.until(loaded)


def commit(harness: Harness, group: str, offset: int) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = harness.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 8)
    assert answer.topics[0].partitions[0].error_code == 0


def committed(harness: Harness, group: str) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = harness.ask(OffsetFetchRequest(group_id=group, topics=[topic]), 7)
    return int(answer.topics[0].partitions[0].committed_offset)


def test_the_offsets_topic_stays_small_and_loads_again(tmp_path: Path) -> None:
    settings = {**QUICK, "offsets_topic_num_partitions": "1"}
    with running(tmp_path, **settings) as harness:
        harness.create_topic("t")
        find_coordinator(harness, "g0")
        harness.alter_topic("__consumer_offsets", internal_segment_bytes="4000")
        log = log_of(harness, "__consumer_offsets")
        assert log.config.compact
        for number in range(300):
            commit(harness, f"g{number % 3}", number)
        harness.until(lambda: is_clean(log))
        assert log.size_bytes < 8000
        assert [committed(harness, f"g{number}") for number in range(3)] == [297, 298, 299]
    with running(tmp_path, **settings) as harness:
        find_coordinator(harness, "g0")
        assert [committed(harness, f"g{number}") for number in range(3)] == [297, 298, 299]


def test_as_many_at_a_time_as_there_are_threads(tmp_path: Path) -> None:
    # So slow that both are under way for a while.
    slow = {"log_cleaner_io_max_bytes_per_second": "200000", "log_cleaner_threads": "2"}
    with running(tmp_path, **QUICK, **slow) as harness:
        names = ("a", "b", "c")
        for name in names:
            harness.create_topic(name, **TABLE, min_cleanable_dirty_ratio="1.0")
            fill(harness, name, 300)
        for name in names:
            harness.alter_topic(name, min_cleanable_dirty_ratio="0")
        logs = [log_of(harness, name) for name in names]
        most = 0

        def done() -> bool:
            nonlocal most
            most = max(most, sum(harness.node.cleaner.is_running(log) for log in logs))
            return all(is_clean(log) for log in logs)

        harness.until(done)
        assert most == 2
        assert len(harness.node.cleaner.worker_pids()) == 2, "workers are used again"


def test_a_stop_before_the_first_step_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("table", **TABLE, min_cleanable_dirty_ratio="1.0")
        fill(harness, "table", 100)
        cleaner, log = harness.node.cleaner, log_of(harness, "table")
        log.roll(0)
        assert compact(harness, "table").cleaned
        (pid,) = cleaner.worker_pids()
        spawn = harness.broker.background.spawn

        def spawn_and_stop(run: Coroutine[Any, Any, None]) -> None:
            """As a stop does: all tasks of the cleaner are cancelled, the run before its first step."""
            spawn(run)
            for task in asyncio.all_tasks():
                if getattr(task.get_coro(), "__qualname__", "").startswith("LogCleaner._"):
                    task.cancel()

        monkeypatch.setattr(harness.broker.background, "spawn", spawn_and_stop)
        result = harness.run(cleaner.compact_now(log))
        assert result.reason == "the broker stops"
        harness.until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_full_disk_is_left_alone(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK) as harness:
        (folder,) = harness.broker.logs.folders
        harness.create_topic("table", **TABLE, min_cleanable_dirty_ratio="1.0")
        fill(harness, "table", 100)
        folder.mark_full()
        harness.alter_topic("table", min_cleanable_dirty_ratio="0")
        log = log_of(harness, "table")
        cleaner = harness.node.cleaner
        for _ in range(2):  # the first check may have begun before the disk was full
            checked_ms = cleaner.next_check_ms
            harness.until(lambda checked_ms=checked_ms: cleaner.next_check_ms > checked_ms)  # type: ignore[misc]
        assert log.offsets.cleaned_offset is None
        assert not log.work.cleaning
        folder.mark_writable()
        harness.until(lambda: is_clean(log))
