"""AlterReplicaLogDirs: moving partitions between data folders while they are written to and read from."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs import log_mover
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.maintenance import flush_to
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AlterReplicaLogDirsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
)
from gregor.storage.folders import move as log_move
from gregor.storage.folders.move import CopyPlan
from gregor.storage.fs.files import OsFiles
from gregor.storage.fs.throttle import Pace
from gregor.storage.log.log import Log
from tests.broker.harness import Harness


class Two:
    """A broker with the data folders a and b, and one topic that lies in a."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.a, self.b = str(base / "a"), str(base / "b")
        self.harness = self.started()

    def started(self) -> Harness:
        settings = {"log_segment_delete_delay_ms": "0", "log_cleaner_enable": "false"}
        return Harness(self.base / "a", log_dirs=f"{self.a},{self.b}", **settings).start()

    def restart(self) -> None:
        self.harness.stop()
        self.harness = self.started()

    def topic(self, name: str = "orders", records: int = 20, **configs: str) -> None:
        self.harness.create_topic(name, internal_segment_bytes="4000", **configs)
        for number in range(records):
            self.harness.produce(name, b"%d" % number * 300)
        self.move(name, self.a)
        self.harness.until(lambda: self.where(name) == [self.a])

    def move(self, name: str, path: str, index: int = 0, version: int = 2) -> ErrorCode:
        topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=[index])
        folder = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[topic])
        answer = self.harness.ask(AlterReplicaLogDirsRequest(dirs=[folder]), version)
        (told,) = answer.results
        assert told.topic_name == name
        (part,) = told.partitions
        assert part.partition_index == index
        return ErrorCode(part.error_code)

    def where(self, name: str = "orders", future: bool = False) -> list[str]:
        """The data folders that DescribeLogDirs shows the partition (or a copy of it) in."""
        return [path for path, one in self.described(name) if one.is_future_key == future]

    def described(self, name: str) -> list[tuple[str, Any]]:
        answer = self.harness.ask(DescribeLogDirsRequest(topics=None), 4)
        return [
            (result.log_dir, part)
            for result in answer.results
            for topic in result.topics
            if topic.name == name
            for part in topic.partitions
        ]

    def folders(self, name: str = "orders") -> list[str]:
        return sorted(str(path.relative_to(self.base)) for path in self.base.glob(f"[ab]/{name}-0*"))

    def values(self, name: str = "orders") -> list[bytes]:
        log = self.harness.broker.logs.get(name, 0)
        assert log is not None
        return [record.value or b"" for record in self.harness.records(name, log.log_start_offset)]


def copy_while_it_changes(source: Path, target: Path) -> None:
    """Copy the files that a crash would leave now; a thread of the broker may be deleting a folder."""
    left_out = (".lock", ".kafka_cleanshutdown")
    for folder, _, names in os.walk(source):
        copy = target / Path(folder).relative_to(source)
        copy.mkdir(parents=True)
        for name in names:
            if name not in left_out and not name.endswith(".tmp"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy2(Path(folder, name), copy / name)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    two = Two(tmp_path)
    yield two
    if not two.harness.loop.is_closed():
        two.harness.stop()


@pytest.fixture
def gate(two: Two, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Copies wait in their thread as long as the list is empty."""
    opened: list[bool] = []
    run = CopyPlan.run

    def gated(self: CopyPlan) -> None:
        while not opened:
            time.sleep(0.001)
        run(self)

    monkeypatch.setattr(CopyPlan, "run", gated)
    yield opened
    opened.append(True)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_partition_moves_with_all_that_is_in_it(two: Two, version: int) -> None:
    two.topic()
    before = two.values()
    log = two.harness.broker.logs.logs["orders", 0]
    segments = [(one.base_offset, one.size_bytes) for one in log.segments]
    assert len(segments) > 2
    bytes_before = [Path(f"{one.stem}.log").read_bytes()[: one.size_bytes] for one in log.segments]
    assert two.move("orders", two.b, version=version) == ErrorCode.NONE
    two.harness.until(lambda: two.where() == [two.b])
    assert two.values() == before
    moved = two.harness.broker.logs.logs["orders", 0]
    assert [(one.base_offset, one.size_bytes) for one in moved.segments] == segments
    assert [Path(f"{one.stem}.log").read_bytes()[: one.size_bytes] for one in moved.segments] == bytes_before
    assert (moved.high_watermark, moved.topic_id, moved.epochs.entries()) == (20, log.topic_id, log.epochs.entries())
    assert two.harness.produce("orders", b"after").base_offset == 20
    two.harness.until(lambda: two.folders() == ["b/orders-0"])
    assert two.where(future=True) == []
    two.restart()
    assert two.values() == [*before, b"after"]
    assert two.folders() == ["b/orders-0"]


def test_it_is_written_to_and_read_from_meanwhile(two: Two, gate: list[bool]) -> None:
    two.topic(records=0)
    gate.append(True)
    expected = [b"%d" % number * 1000 for number in range(60)]
    sent = {"producer_id": 5, "producer_epoch": 0}
    for number in range(30):
        two.harness.produce("orders", expected[number], base_sequence=number, **sent)
    gate.clear()
    assert two.move("orders", two.b) == ErrorCode.NONE
    for number in range(30, 60):
        answer = two.harness.produce("orders", expected[number], base_sequence=number, **sent)
        assert (answer.error_code, answer.base_offset) == (0, number)
    assert two.values() == expected
    place, copy = next(entry for entry in two.described("orders") if entry[1].is_future_key)
    assert (place, copy.offset_lag) == (two.b, 60)
    assert two.where() == [two.a]
    gate.append(True)
    two.harness.until(lambda: two.where() == [two.b])
    assert two.values() == expected
    # The producer's state was moved, too: a repetition is recognised, and the next batch is appended.
    assert two.harness.produce("orders", expected[59], base_sequence=59, **sent).base_offset == 59
    assert two.harness.produce("orders", b"next", base_sequence=60, **sent).base_offset == 60


def test_a_record_that_waits_for_its_flush_is_acknowledged_by_that_of_the_copy(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.topic(records=0, flush_messages="1")
    logs, replicas = two.harness.broker.logs, two.harness.broker.replicas
    log = logs.logs["orders", 0]
    move = logs.moves.begin(("orders", 0), logs.folders[1])
    flushed: list[Log] = []

    async def flush(one: Log, offset: int, background: Background, now_ms: int) -> None:
        flushed.append(one)
        if one is log:
            while (plan := move.plan()) is not None:
                plan.run()
                move.copied(plan)
            assert move.is_caught_up()
            replicas.log_moved(logs.finish_move(move)[0])
        await flush_to(one, offset, background, now_ms)

    monkeypatch.setattr("gregor.broker.handlers.k00_produce.flush_to", flush)
    answer = two.harness.produce("orders", b"while it is moved")
    moved = logs.logs["orders", 0]
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert flushed == [log, moved]
    assert moved.recovery_point == 1
    assert two.values() == [b"while it is moved"]


def test_retention_and_truncation_meanwhile(two: Two, gate: list[bool]) -> None:
    two.topic(retention_bytes="6000")
    log = two.harness.broker.logs.logs["orders", 0]
    two.move("orders", two.b)
    now_ms = two.harness.broker.now_ms()
    log.retention.delete_due(now_ms)
    start = log.log_start_offset
    assert start > 0
    log.truncate_to(18)
    log.offsets.restore_high_watermark(18)
    two.harness.produce("orders", b"instead")
    gate.append(True)
    two.harness.until(lambda: two.where() == [two.b])
    assert two.values()[-1] == b"instead"
    assert len(two.values()) == 19 - start
    names = sorted(path.name for path in Path(two.b, "orders-0").glob("*.log"))
    assert names[0] == f"{start:020d}.log"


def test_deleted_records_stay_deleted_over_the_swap(two: Two, tmp_path: Path) -> None:
    two.topic()
    log = two.harness.broker.logs.logs["orders", 0]
    log.retention.advance_log_start_offset(13)
    two.move("orders", two.b)
    two.harness.until(lambda: two.harness.broker.logs.logs["orders", 0] is not log)
    moved = two.harness.broker.logs.logs["orders", 0]
    assert moved.log_start_offset == 13
    checkpoint = Path(two.b, "log-start-offset-checkpoint").read_text()
    assert "orders 0 13" in checkpoint.splitlines()


def test_what_is_refused(two: Two) -> None:
    two.topic()
    long = "t" * 240
    two.harness.create_topic(long)
    assert two.move("orders", "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert two.move("absent", two.b) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert two.move("orders", two.b, index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert two.move(long, two.b) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert two.move("orders", two.a) == ErrorCode.NONE  # there already
    assert two.folders() == ["a/orders-0"]
    logs = two.harness.broker.logs
    logs.fail_folder(logs.folders[1], OSError(errno.EIO, "broken"))
    assert two.move("orders", two.b) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_folder_asked_for_before_the_partition_exists_gets_it(two: Two) -> None:
    for name, path in (("first", two.b), ("second", two.b), ("third", two.a)):
        assert two.move(name, path) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        two.harness.create_topic(name)
        assert two.where(name) == [path]


def test_a_move_can_be_turned_back(two: Two, gate: list[bool]) -> None:
    two.topic()
    two.move("orders", two.b)
    assert two.where(future=True) == [two.b]
    assert two.move("orders", two.a) == ErrorCode.NONE
    assert two.where(future=True) == []
    gate.append(True)
    two.harness.until(lambda: two.folders() == ["a/orders-0"])
    assert len(two.values()) == 20


def test_a_topic_deleted_meanwhile_is_gone_from_both(two: Two, gate: list[bool]) -> None:
    two.topic()
    two.move("orders", two.b)
    asked = two.harness.begin(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=30_000), 5)
    gate.append(True)
    assert two.harness.run(asked).responses[0].error_code == 0
    two.harness.until(lambda: two.folders() == [])
    two.restart()
    assert two.harness.broker.metadata.topic("orders") is None


def test_a_copy_that_fails_leaves_all_as_it_was(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    two.topic()

    def failing(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log_move, "_copy", failing)
    two.move("orders", two.b)
    two.harness.until(lambda: two.folders() == ["a/orders-0"])
    assert two.where(future=True) == []
    assert len(two.values()) == 20
    monkeypatch.undo()
    two.move("orders", two.b)
    two.harness.until(lambda: two.where() == [two.b])


def test_a_folder_that_takes_no_checkpoints_gets_no_log(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them a crash right after the swap would bring deleted records back."""
    two.topic()
    write = OsFiles.write_atomically

    def failing(files: OsFiles, path: str, data: bytes, *, sync: bool = True) -> None:
        if os.path.dirname(path) == two.b and path.endswith("-checkpoint"):
            raise OSError(errno.EACCES, "Permission denied")
        write(files, path, data, sync=sync)

    monkeypatch.setattr(OsFiles, "write_atomically", failing)
    two.move("orders", two.b)
    two.harness.until(lambda: two.where(future=True) == [] and two.folders() == ["a/orders-0"])
    assert two.where() == [two.a]
    assert len(two.values()) == 20


@pytest.mark.parametrize("step", range(1, 4))
def test_a_swap_that_fails_leaves_all_as_it_was(two: Two, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    two.topic()
    rename, opened = os.rename, log_move.Log.open
    calls = 0

    def failing(source: str, target: str) -> None:
        nonlocal calls
        if "-future" in source or "-delete" in target:
            calls += 1
            if calls == step:
                raise OSError(errno.EACCES, "Permission denied")
        rename(source, target)

    def unopened(directory: str, *rest: Any, **named: Any) -> Any:
        if directory.startswith(two.b) and step == 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(directory, *rest, **named)

    monkeypatch.setattr(os, "rename", failing)
    monkeypatch.setattr(log_move.Log, "open", unopened)
    two.move("orders", two.b)
    two.harness.until(lambda: two.where(future=True) == [])
    monkeypatch.undo()
    assert two.where() == [two.a]
    assert len(two.values()) == 20
    assert two.harness.produce("orders", b"x").error_code == 0
    two.restart()
    assert len(two.values()) == 21


def test_a_source_that_cannot_be_read_is_not_laid_to_the_target(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    two.topic()
    pread = os.pread

    def failing(descriptor: int, size_bytes: int, position: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if "/a/orders-0/" in path and threading.current_thread().name.startswith("moves"):
            raise OSError(errno.EIO, "Input/output error")
        return pread(descriptor, size_bytes, position)

    monkeypatch.setattr(os, "pread", failing)
    told: list[tuple[str, int | None]] = []
    logs = two.harness.broker.logs
    logs.disk_errors.subscribe(lambda folder, log, error: told.append((folder.path, error.errno)))
    two.move("orders", two.b)
    two.harness.until(lambda: bool(told), 30)
    assert told == [(two.a, errno.EIO)]
    assert two.where() == [two.a]


def test_a_full_disk_that_a_move_relieves_is_no_reason_to_give_it_up(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """The swap begins with a longer name for the original, for which there may be no room."""
    two.topic()
    monkeypatch.setattr(log_mover, "_FULL_RETRY_S", 0.001)
    rename = os.rename
    refused: list[str] = []

    def without_room(source: str, target: str) -> None:
        if "-delete" in target and len(refused) < 3:
            refused.append(source)
            raise OSError(errno.ENOSPC, "No space left on device", source, None, target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", without_room)
    folder_a, folder_b = two.harness.broker.logs.folders
    two.move("orders", two.b)
    two.harness.until(lambda: two.where() == [two.b] and two.folders() == ["b/orders-0"], 30)
    assert refused == [f"{two.a}/orders-0"] * 3
    assert (folder_a.full, folder_b.full) == (True, False)
    assert (folder_a.failure, folder_b.failure) == (None, None)
    assert len(two.values()) == 20


class CountedPace(Pace):
    """Counts the calls of `wait_s`, on a clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.looks = 0
        super().__init__(lambda: self.now_s)

    def wait_s(self, bytes_per_second: float) -> float:
        self.looks += 1
        return super().wait_s(bytes_per_second)


def limit_moves(two: Two, bytes_per_second: str | None) -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name="replica.alter.log.dirs.io.max.bytes.per.second",
        config_operation=0 if bytes_per_second is not None else 1,
        value=bytes_per_second,
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name=str(two.harness.broker.broker_id), configs=[config]
    )
    answer = two.harness.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def test_a_limit_holds_moves_back_from_when_it_is_set(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    pace = CountedPace()
    copied: list[int] = []
    run = CopyPlan.run

    def noted(plan: CopyPlan) -> None:
        copied.append(plan.size_bytes)
        run(plan)

    def look() -> None:
        looks = pace.looks
        two.harness.until(lambda: pace.looks > looks + 2, 30)

    two.topic(records=60)
    mover = two.harness.broker.mover
    monkeypatch.setattr(CopyPlan, "run", noted)
    monkeypatch.setattr(mover, "_pace", pace)
    monkeypatch.setattr(log_mover, "_POLL_EVERY_S", 0.001)
    limit_moves(two, "1000")
    two.move("orders", two.b)
    two.harness.until(lambda: bool(copied), 30)
    for pieces in (1, 2):
        pace.now_s += copied[-1] / 1000 - 0.1
        look()
        assert len(copied) == pieces, "what was copied is not paid off yet"
        pace.now_s += 0.2
        two.harness.until(lambda: len(copied) > pieces, 30)  # noqa: B023
    limit_moves(two, "0")
    look()
    pieces = len(copied)
    pace.now_s += 3600
    look()
    assert len(copied) == pieces
    assert two.where() == [two.a]
    limit_moves(two, None)

    def moved() -> bool:
        pace.now_s += 0.001
        return two.where() == [two.b]

    two.harness.until(moved, 30)
    assert len(two.values()) == 60


def test_a_stop_meanwhile_is_made_up_for_by_the_next_start(two: Two, gate: list[bool]) -> None:
    two.topic()
    two.move("orders", two.b)
    assert two.where(future=True) == [two.b]
    two.harness.turn()
    # The stop waits for the thread, but gives the move up before.
    opening = threading.Timer(0.05, gate.append, [True])
    opening.start()
    two.harness.stop()
    opening.join()
    assert two.folders()[0] == "a/orders-0"
    assert os.listdir(two.base / two.folders()[1]) == []
    two.harness = two.started()
    two.harness.until(lambda: two.where() == [two.b] and two.folders() == ["b/orders-0"])
    assert len(two.values()) == 20


def test_the_next_start_goes_on_behind_what_was_copied(two: Two) -> None:
    two.topic(records=60)
    limit_moves(two, "1")  # the first segment, and then nothing for an hour
    two.move("orders", two.b)
    move = two.harness.broker.logs.moves.under_way["orders", 0]
    two.harness.until(lambda: move.size_bytes > 0, 30)
    copied_bytes = move.size_bytes
    two.harness.stop()
    assert len(list((two.base / two.folders()[1]).glob("*.log"))) == 1
    two.harness = two.started()
    assert two.harness.broker.logs.moves.under_way["orders", 0].size_bytes >= copied_bytes
    limit_moves(two, None)
    two.harness.until(lambda: two.where() == [two.b] and two.folders() == ["b/orders-0"], 30)
    assert len(two.values()) == 60
    assert sorted(path.name for path in (Path(two.b) / "orders-0").glob("*gregor*")) == []


def test_a_crash_between_the_two_renames_leaves_the_copy(two: Two) -> None:
    two.topic()
    two.move("orders", two.b)
    two.harness.until(lambda: two.where() == [two.b] and two.folders() == ["b/orders-0"])
    two.harness.stop()
    unique = "0123456789abcdef" * 2
    os.rename(two.base / "b/orders-0", two.base / f"b/orders-0.{unique}-future")
    (two.base / f"a/orders-0.{unique}-delete").mkdir()
    two.harness = two.started()
    assert len(two.values()) == 20
    assert two.where() == [two.b]
    two.harness.until(lambda: two.folders() == ["b/orders-0"])


def test_a_power_cut_that_undid_the_first_rename_alone(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    two.topic()
    two.harness.stop()
    shutil.copytree(two.base / "a/orders-0", two.base / "b/orders-0")
    (two.base / "b/orders-0" / log_move.MOVED_FILE).touch()
    two.harness = two.started()
    assert two.where() == [two.b]
    assert len(two.values()) == 20
    assert [path.rpartition("-")[2] for path in two.folders()] == ["stray", "0"]
    assert "was moved to" in caplog.text


def test_a_copy_alone_is_no_partition(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    two.topic()
    two.harness.stop()
    unique = "0123456789abcdef" * 2
    os.rename(two.base / "a/orders-0", two.base / f"b/orders-0.{unique}-future")
    two.harness = two.started()
    assert "is the copy of a partition that is not here" in caplog.text
    assert f"b/orders-0.{unique}-future" in two.folders()


@pytest.mark.parametrize("moment", ["copying", "after"])
def test_a_crash_at_any_moment_leaves_one_of_both(two: Two, gate: list[bool], tmp_path: Path, moment: str) -> None:
    two.topic()
    expected = two.values()
    two.move("orders", two.b)
    if moment == "after":
        gate.append(True)
        two.harness.until(lambda: two.where() == [two.b])
    for name in ("a", "b"):
        copy_while_it_changes(two.base / name, tmp_path / "crash" / name)
    gate.append(True)
    two.harness.stop()
    crashed = Two.__new__(Two)
    crashed.base = tmp_path / "crash"
    crashed.a, crashed.b = str(crashed.base / "a"), str(crashed.base / "b")
    two.harness = crashed.harness = crashed.started()
    crashed.harness.until(lambda: crashed.where() == [crashed.b])
    assert crashed.values() == expected
    crashed.harness.until(lambda: crashed.folders() == ["b/orders-0"])


@pytest.mark.slow
def test_compaction_meanwhile(two: Two, gate: list[bool]) -> None:
    two.topic(records=0, cleanup_policy="compact", min_compaction_lag_ms="0")
    for number in range(60):
        two.harness.produce("orders", (b"key-%d" % (number % 5), b"%d" % number * 200))
    log = two.harness.broker.logs.logs["orders", 0]
    compaction = two.harness.loop.create_task(two.harness.node.cleaner.compact_now(log))
    two.harness.until(lambda: log.work.cleaning)
    two.move("orders", two.b)
    result = two.harness.run(compaction, 20)
    assert result.cleaned, result.reason
    expected = [(record.offset, record.key, record.value) for record in two.harness.records("orders")]
    assert len(expected) < 40
    gate.append(True)
    two.harness.until(lambda: two.where() == [two.b])
    moved = two.harness.broker.logs.logs["orders", 0]
    assert moved.offsets.cleaned_offset == log.offsets.cleaned_offset
    assert [(record.offset, record.key, record.value) for record in two.harness.records("orders")] == expected
    assert len(list(Path(two.b, "orders-0").glob("*.log"))) == moved.segments_count
    two.restart()
    assert [(record.offset, record.key, record.value) for record in two.harness.records("orders")] == expected
