"""The logs of a broker: start, making and removing logs, checkpoints, retention, the stop."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from weakref import ref

import pytest

from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID, uuid_from_text, uuid_to_text
from gregor.protocol.turns import run_all
from gregor.storage.folders import loading as log_loading
from gregor.storage.folders.checkpoints import parse_offsets
from gregor.storage.folders.data_folder import DataFolder
from gregor.storage.folders.identity import InconsistentFolder, MetaProperties
from gregor.storage.folders.loading import DuplicatePartition
from gregor.storage.folders.manager import LogManager
from gregor.storage.folders.names import FolderKind, parse_folder_name
from gregor.storage.fs.files import DirectoryEntry, Files, OsFiles
from gregor.storage.fs.folder_lock import FolderInUse
from gregor.storage.log.log import Log
from tests.storage.checkpoints import write_high_watermarks
from tests.storage.logs import NOW_MS, batch, log_config, read_offsets
from tests.storage.memory_files import MemoryFiles
from tests.support.cycles import left_in_cycles

TOPIC_ID = uuid_from_text("ST_DYboMSwu29fD6Z_eltQ")
OTHER_ID = uuid_from_text("XoSDzgrARomkabma0vbG8w")
SMALL_SEGMENTS = log_config(segment_bytes=300, index_interval_bytes=100)


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


def new_manager(files: Files, *folders: str, clock: Clock | None = None, **settings: str) -> LogManager:
    folders = folders or ("/data",)
    for folder in folders:
        files.make_directory(folder)
    config = BrokerConfig({"log.dirs": ",".join(folders)} | settings)
    return LogManager(config, files, clock or Clock())


def started(files: Files, *folders: str) -> LogManager:
    manager = new_manager(files, *folders)
    for _ in manager.load(lambda topic: SMALL_SEGMENTS):
        pass
    return manager


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(batch(1), 0, NOW_MS)


def offsets_in(files: MemoryFiles, name: str, folder: str = "/data") -> dict[tuple[str, int], int]:
    return parse_offsets(files.read_bytes(f"{folder}/{name}"), name)


def folders_in(files: MemoryFiles, path: str = "/data") -> list[str]:
    return sorted(entry.name for entry in files.list_directory(path) if entry.is_directory)


class TestMeta:
    def test_a_new_folder_gets_an_id(self) -> None:
        files = MemoryFiles()
        manager = new_manager(files, "/data", "/more")
        cluster_id = manager.load_meta(None, 3)
        assert len(cluster_id) == 22
        assert manager.broker_id == 3
        for folder in manager.folders:
            assert folder.read_meta() == MetaProperties(0, 3, cluster_id)
        assert new_manager(files).load_meta(None, None) == cluster_id

    def test_folders_tell_the_broker_who_it_is(self) -> None:
        files = MemoryFiles()
        new_manager(files).load_meta("kafkas", 3)
        manager = new_manager(files, "/data", "/more")
        assert manager.load_meta(None, None) == "kafkas"
        assert manager.broker_id == 3
        assert manager.folders[1].read_meta() == MetaProperties(0, 3, "kafkas")

    def test_nothing_is_written_before_the_broker_id_is_known(self) -> None:
        files = MemoryFiles()
        manager = new_manager(files)
        cluster_id = manager.load_meta(None, None)
        assert manager.broker_id is None
        assert manager.folders[0].read_meta() is None
        assert manager.load_meta(None, 1001) == cluster_id
        assert manager.folders[0].read_meta() == MetaProperties(0, 1001, cluster_id)

    def test_a_folder_that_says_it_all_is_not_written(self) -> None:
        files = MemoryFiles()
        new_manager(files).load_meta("kafkas", 3)
        files.calls.clear()
        new_manager(files).load_meta("kafkas", 3)
        assert files.calls["write_atomically"] == 0

    def test_anothers_folder_is_refused_and_left_as_it_is(self) -> None:
        files = MemoryFiles()
        new_manager(files).load_meta("kafkas", 3)
        for cluster_id, broker_id in (("kafkas", 4), ("another", 3)):
            manager = new_manager(files)
            with pytest.raises(InconsistentFolder, match=r"/data/meta\.properties belongs to"):
                manager.load_meta(cluster_id, broker_id)
            assert manager.folders[0].read_meta() == MetaProperties(0, 3, "kafkas")


class TestLock:
    def test_all_folders_or_none(self, tmp_path: Path) -> None:
        first, second = str(tmp_path / "a"), str(tmp_path / "b")
        config = BrokerConfig({"log.dirs": f"{first},{second}"})
        holder = LogManager(BrokerConfig({"log.dirs": second}), OsFiles(), Clock())
        holder.lock()
        manager = LogManager(config, OsFiles(), Clock())
        with pytest.raises(FolderInUse, match="/b is locked"):
            manager.lock()
        other = LogManager(BrokerConfig({"log.dirs": first}), OsFiles(), Clock())
        other.lock()
        other.unlock()
        holder.unlock()
        manager.lock()
        manager.close_all()
        holder.lock()
        holder.unlock()


class TestLogs:
    def test_a_new_log_lies_in_the_folder_with_the_fewest(self) -> None:
        files = MemoryFiles()
        manager = started(files, "/a", "/b", "/c")
        for partition in range(7):
            manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS)
        assert [len(folders_in(files, path)) for path in ("/a", "/b", "/c")] == [3, 2, 2]
        manager.remove("t", 0)
        assert manager.folder_of(manager.get_or_create("t", 7, TOPIC_ID, SMALL_SEGMENTS)) == "/a"

    def test_its_files_are_kafkas(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        log = manager.get_or_create("t", 4, TOPIC_ID, SMALL_SEGMENTS)
        assert log.directory == "/data/t-4"
        assert files.read_bytes("/data/t-4/partition.metadata") == b"version: 0\ntopic_id: ST_DYboMSwu29fD6Z_eltQ"
        assert manager.get("t", 4) is log
        assert manager.get("t", 5) is None

    def test_the_same_log_again_takes_the_new_settings(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        log = manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        other = log_config(segment_bytes=999)
        assert manager.get_or_create("t", 0, TOPIC_ID, other) is log
        assert log.config is other

    def test_another_topic_of_the_same_name_is_refused(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        manager.get_or_create("t", 0, ZERO_UUID, SMALL_SEGMENTS)
        with pytest.raises(KafkaError, match=uuid_to_text(TOPIC_ID)) as caught:
            manager.get_or_create("t", 0, OTHER_ID, SMALL_SEGMENTS)
        assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID

    def test_a_log_without_an_id_takes_the_one_it_is_told(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        log = manager.get_or_create("t", 0, ZERO_UUID, SMALL_SEGMENTS)
        assert not files.exists("/data/t-0/partition.metadata")
        manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        assert log.topic_id == TOPIC_ID
        manager.checkpoints.write_all()
        files.sync_directory("/data/t-0")
        files.crash()
        assert started(files).logs["t", 0].topic_id == TOPIC_ID

    def test_a_folder_that_fails_is_passed_over(self) -> None:
        files = MemoryFiles()
        manager = started(files, "/a", "/b")
        files.fail("create")
        log = manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        assert manager.folder_of(log) == "/b"

    def test_no_folder_left(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        files.fail("create")
        with pytest.raises(KafkaError) as caught:
            manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS).log_end_offset == 0

    def test_sizes(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        for topic, partition, count in (("t", 0, 2), ("t", 1, 3), ("u", 0, 1)):
            fill(manager.get_or_create(topic, partition, ZERO_UUID, SMALL_SEGMENTS), count)
        one = len(batch(1))
        assert (manager.size_bytes("t"), manager.size_bytes("u"), manager.size_bytes("v")) == (5 * one, one, 0)


class TestRemoval:
    def test_the_folder_is_renamed_as_kafka_renames_it(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        log = manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        fill(log, 3)
        held = log.read(0, 1000, 3)
        path = manager.remove("t", 0)
        assert folders_in(files) == [path.removeprefix("/data/")]
        parsed = parse_folder_name(path.removeprefix("/data/"))
        assert parsed is not None and parsed.kind is FolderKind.DELETE
        assert manager.get("t", 0) is None
        assert len(held.read()) == 3 * len(batch(1))
        held.release()

    @pytest.mark.parametrize("loaded", [False, True])
    def test_the_log_is_freed_without_a_collection(self, loaded: bool, tmp_path: Path) -> None:
        manager = started(OsFiles(), str(tmp_path))
        if loaded:
            fill(manager.get_or_create("orders", 0, TOPIC_ID, SMALL_SEGMENTS), 10)
            manager.close_all()
            manager = started(OsFiles(), str(tmp_path))
        removed: list[ref[Log]] = []

        def remove() -> None:
            log = manager.get_or_create("orders", 0, TOPIC_ID, SMALL_SEGMENTS)
            fill(log, 10)
            log.flusher.flush(NOW_MS)
            manager.checkpoints.write_all()
            manager.remove("orders", 0)
            removed.append(ref(log))

        assert left_in_cycles(remove) == set()
        assert [log() for log in removed] == [None]

    def test_what_is_not_there(self) -> None:
        with pytest.raises(KafkaError) as caught:
            started(MemoryFiles()).remove("t", 0)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_rename_that_fails_leaves_the_log_in_use(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        log = manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        files.fail("rename")
        with pytest.raises(KafkaError) as caught:
            manager.remove("t", 0)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert manager.get("t", 0) is log
        fill(log, 1)

    def test_the_next_start_hands_over_what_was_not_unlinked(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        path = manager.remove("t", 0)
        again = started(files)
        assert again.logs == {}
        assert again.pop_unlinkable() == [path]

    @pytest.mark.parametrize("restarted", [False, True])
    def test_a_log_made_anew_inherits_no_offsets(self, restarted: bool) -> None:
        files = MemoryFiles()
        manager = started(files)
        log = manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        fill(log, 50)
        log.offsets.restore_high_watermark(50)
        log.retention.advance_log_start_offset(40)
        log.flusher.flush()
        manager.checkpoints.write_all()
        assert offsets_in(files, "log-start-offset-checkpoint") == {("t", 0): 40}
        manager.remove("t", 0)
        if restarted:
            manager = started(files)
        fill(manager.get_or_create("t", 0, OTHER_ID, SMALL_SEGMENTS), 5)
        again = started(files)
        log = again.logs["t", 0]
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 5, 0)
        assert again.high_watermark_checkpoint("t", 0) == 0


class TestCheckpoints:
    def test_what_is_written(self) -> None:
        files = MemoryFiles()
        manager = started(files, "/a", "/b")
        for partition, (flushed, high_watermark, start) in enumerate([(3, 5, 0), (6, 6, 2)]):
            log = manager.get_or_create("t", partition, TOPIC_ID, log_config())
            fill(log, flushed)
            log.flusher.flush()
            fill(log, 7 - flushed)
            log.offsets.restore_high_watermark(high_watermark)
            log.retention.advance_log_start_offset(start)
        run_all(manager.checkpoints.recovery_points())()
        assert offsets_in(files, "recovery-point-offset-checkpoint", "/a") == {("t", 0): 3}
        assert offsets_in(files, "recovery-point-offset-checkpoint", "/b") == {("t", 1): 6}
        assert offsets_in(files, "log-start-offset-checkpoint", "/a") == {}
        assert offsets_in(files, "log-start-offset-checkpoint", "/b") == {("t", 1): 2}
        assert not files.exists("/a/replication-offset-checkpoint")
        assert write_high_watermarks(manager) == {}
        assert offsets_in(files, "replication-offset-checkpoint", "/a") == {("t", 0): 5}
        assert offsets_in(files, "replication-offset-checkpoint", "/b") == {("t", 1): 6}

    def test_the_next_start_reads_them(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        log = manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS)
        fill(log, 9)
        log.offsets.restore_high_watermark(7)
        log.retention.advance_log_start_offset(1)
        log.flusher.flush()
        manager.checkpoints.write_all()
        again = started(files)
        log = again.logs["t", 0]
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.recovery_point) == (1, 7, 9, 9)
        assert again.high_watermark_checkpoint("t", 0) == 7

    def test_a_high_watermark_beyond_the_log_is_cut(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        fill(manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS), 3)
        files.write_atomically("/data/replication-offset-checkpoint", b"0\n1\nt 0 99\n")
        assert started(files).logs["t", 0].high_watermark == 3

    def test_logs_that_are_not_loaded_keep_what_they_had(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        for partition in range(3):
            log = manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS)
            fill(log, 4)
            log.offsets.restore_high_watermark(4)
            log.retention.advance_log_start_offset(2)
            log.flusher.flush()
        manager.checkpoints.write_all()
        names = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")
        before = [offsets_in(files, name) for name in names]
        loading = new_manager(files)
        steps = loading.load()
        while not loading.logs:
            next(steps)
        loading.checkpoints.write_all()
        assert [offsets_in(files, name) for name in names] == before


class TestLoading:
    def test_logs_come_one_by_one_and_can_be_used_at_once(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        for partition in range(5):
            fill(manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS), 10 * (5 - partition))
        loading = new_manager(files)
        seen = []
        for log in loading.load():
            if log is not None:
                seen.append(log.partition)
                fill(log, 1)
                assert [loading.is_loading("t", partition) for partition in range(5)] == [
                    partition not in seen for partition in range(5)
                ]
                assert loading.progress.partitions_done == len(seen)
        assert seen == [4, 3, 2, 1, 0]  # the least work first
        assert loading.progress.bytes_done == loading.progress.bytes_total == 150 * len(batch(1))
        assert str(loading.progress).startswith("5 of 5 partitions, 0.0 of 0.0 MB checked")

    def test_a_clean_start_has_nothing_to_check(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        fill(manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS), 10)
        manager.close_all()
        again = started(files)
        assert again.progress.bytes_total == 0
        assert str(again.progress) == "1 of 1 partitions"
        assert read_offsets(again.logs["t", 0], 0) == list(range(10))

    def test_long_work_is_cut_into_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        files = MemoryFiles()
        manager = started(files)
        fill(manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS), 40)
        monkeypatch.setattr(log_loading, "STEP_S", 0.0)
        steps = list(new_manager(files).load())
        assert len(steps) > 10
        assert [step for step in steps if step is not None] == [steps[-1]]

    def test_a_log_still_being_loaded_is_not_made_anew(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        for partition in range(2):
            fill(manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS), partition + 1)
        loading = new_manager(files)
        steps = loading.load()
        while not loading.logs:
            next(steps)
        with pytest.raises(KafkaError, match="still being loaded") as caught:
            loading.get_or_create("t", 1, TOPIC_ID, SMALL_SEGMENTS)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert next(log for log in steps if log is not None).log_end_offset == 2

    def test_a_partition_that_fails_does_not_hold_up_the_others(self, caplog: pytest.LogCaptureFixture) -> None:
        files = MemoryFiles()
        manager = started(files)
        for partition in range(3):
            fill(manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS), 4)
            manager.logs["t", partition].flusher.flush()
        manager.close_all()
        files.unlink("/data/.kafka_cleanshutdown")
        files.fail("read", after=12, error=PermissionError(13, "not yours"))
        again = started(files)
        assert len(again.logs) == 2
        ((key, error),) = again.failed.items()
        assert isinstance(error, OSError)
        assert f"/data/t-{key[1]} cannot be loaded" in caplog.text
        with pytest.raises(KafkaError, match="failed: "):
            again.get_or_create(*key, TOPIC_ID, SMALL_SEGMENTS)
        again.close_all()
        assert not files.exists("/data/.kafka_cleanshutdown")
        assert offsets_in(files, "recovery-point-offset-checkpoint")[key] == 4
        assert len(started(files).logs) == 3

    def test_a_disk_that_fails_takes_its_whole_folder_and_no_other(self, caplog: pytest.LogCaptureFixture) -> None:
        """As in Kafka's LogManager: an IOException during loading puts the log directory offline."""
        files = MemoryFiles()
        manager = started(files, "/a", "/b")
        for partition in range(6):
            fill(manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS), 4)
        in_a = [key for key, log in manager.logs.items() if manager.folder_of(log) == "/a"]
        assert len(in_a) == 3
        lost = in_a[1]
        path = f"/a/t-{lost[1]}"
        files.break_folder(path, OSError(errno.EIO, "a bad block"))
        again = started(files, "/a", "/b")
        assert {str(folder.failure) for folder in again.folders} == {"[Errno 5] a bad block", "None"}
        assert again.failed.keys() == set(in_a)
        assert again.logs.keys() == manager.logs.keys() - set(in_a)
        assert "/a cannot be used, its partitions are offline" in caplog.text
        with pytest.raises(KafkaError, match="failed: "):
            again.get_or_create(*in_a[0], TOPIC_ID, SMALL_SEGMENTS)
        files.mend_folder(path)
        again.close_all()
        assert len(started(files, "/a", "/b").logs) == 6

    def test_where_it_is_the_only_one_there_is_no_start(self) -> None:
        files = MemoryFiles()
        fill(started(files).get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS), 4)
        files.break_folder("/data/t-0", OSError(errno.EIO, "a bad block"))
        with pytest.raises(OSError, match="a bad block"):
            started(files)

    def test_whoever_watches_over_the_disks_decides(self) -> None:
        files = MemoryFiles()
        fill(started(files).get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS), 4)
        files.break_folder("/data/t-0", OSError(errno.EIO, "a bad block"))
        manager = new_manager(files)
        told: list[tuple[DataFolder, OSError]] = []
        manager.disk_errors.subscribe(lambda folder, log, error: told.append((folder, error)))
        assert list(manager.load()) == []
        assert [(folder.path, error.errno) for folder, error in told] == [("/data", errno.EIO)]

    def test_a_folder_that_cannot_be_listed_does_not_either(self, monkeypatch: pytest.MonkeyPatch) -> None:
        files = MemoryFiles()
        manager = started(files)
        for partition in range(2):
            fill(manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS), 4)
        listing = files.list_directory

        def broken(path: str) -> list[DirectoryEntry]:
            if path == "/data/t-0":
                raise PermissionError(13, "not yours", path)
            return listing(path)

        monkeypatch.setattr(files, "list_directory", broken)
        again = started(files)
        assert list(again.logs) == [("t", 1)]
        assert list(again.failed) == [("t", 0)]

    def test_the_same_partition_twice(self) -> None:
        files = MemoryFiles()
        for folder in ("/a", "/b"):
            files.make_directory(f"{folder}/t-0")
            files.create(f"{folder}/t-0/{0:020d}.log")
        with pytest.raises(DuplicatePartition, match=r"/a/t-0 and /b/t-0 are the same partition"):
            started(files, "/a", "/b")

    @pytest.mark.parametrize("empty", ["/a", "/b"])
    def test_a_folder_that_was_left_at_once_is_no_second_one(self, empty: str) -> None:
        files = MemoryFiles()
        manager = started(files, "/a" if empty == "/b" else "/b")
        fill(manager.get_or_create("t", 0, TOPIC_ID, SMALL_SEGMENTS), 4)
        manager.close_all()
        files.make_directory(f"{empty}/t-0")
        again = started(files, "/a", "/b")
        assert again.logs["t", 0].log_end_offset == 4
        assert again.pop_unlinkable() == [f"{empty}/t-0"]
        assert sorted(folder.partitions_count for folder in again.folders) == [0, 1]

    def test_unknown_folders_are_left_alone_and_named_once(self, caplog: pytest.LogCaptureFixture) -> None:
        files = MemoryFiles()
        for name in ("lost+found", "__cluster_metadata-0", "t-0.00ff-stray"):
            files.make_directory(f"/data/{name}")
        with caplog.at_level(logging.WARNING):
            manager = started(files)
        assert manager.logs == {}
        assert sum("lost+found" in record.message for record in caplog.records) == 1
        manager.close_all()
        assert folders_in(files) == ["__cluster_metadata-0", "lost+found", "t-0.00ff-stray"]

    def test_each_topic_has_its_own_settings(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        for topic in ("t", "u"):
            manager.get_or_create(topic, 0, ZERO_UUID, SMALL_SEGMENTS)
        settings = {"t": log_config(segment_bytes=111), "u": log_config(segment_bytes=222)}
        again = new_manager(files)
        assert {log.topic: log.config.segment_bytes for log in again.load(settings.__getitem__) if log} == {
            "t": 111,
            "u": 222,
        }


def test_retention_goes_a_log_a_step_and_past_failures(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    manager = started(files)
    config = log_config(segment_bytes=300, retention_ms=1000)
    for partition in range(3):
        log = manager.get_or_create("t", partition, TOPIC_ID, config)
        fill(log, 9)
        log.offsets.restore_high_watermark(9)
    files.fail("rename")
    passes = list(manager.retention_pass(NOW_MS + 2000))
    assert len(passes) == 2
    assert all(path.endswith(".deleted") for paths, _ in passes for path in paths)
    assert "/data/t-0: retention failed" in caplog.text
    assert [manager.logs["t", partition].log_start_offset for partition in (1, 2)] == [9, 9]


class TestStop:
    def test_a_clean_stop_needs_no_check(self) -> None:
        files = MemoryFiles()
        manager = started(files, "/a", "/b")
        for partition in range(4):
            fill(manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS), 10)
        manager.close_all(broker_epoch=5)
        files.crash()
        assert files.read_bytes("/a/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":5}'
        again = started(files, "/a", "/b")
        assert [folder.was_clean for folder in again.folders] == [True, True]
        assert {key: log.log_end_offset for key, log in again.logs.items()} == {("t", p): 10 for p in range(4)}
        # The marker counts once.
        third = started(files, "/a", "/b")
        assert [folder.was_clean for folder in third.folders] == [False, False]
        assert third.progress.bytes_total > 0

    def test_a_folder_where_something_failed_gets_no_marker(self) -> None:
        files = MemoryFiles()
        manager = started(files, "/a", "/b")
        for partition in range(2):
            fill(manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS), 1)
        files.fail("sync")
        manager.close_all()
        assert not files.exists("/a/.kafka_cleanshutdown")
        assert files.exists("/b/.kafka_cleanshutdown")

    @pytest.mark.parametrize("clean_before", [True, False])
    def test_a_stop_in_the_middle_of_loading(self, clean_before: bool) -> None:
        files = MemoryFiles()
        manager = started(files)
        for partition in range(3):
            fill(manager.get_or_create("t", partition, TOPIC_ID, SMALL_SEGMENTS), 10)
        if clean_before:
            manager.close_all()
        loading = new_manager(files)
        steps = loading.load()
        while not loading.logs:
            next(steps)
        loading.close_all()
        # The logs that were not reached are as before: still cleanly closed, or still to be checked.
        assert files.exists("/data/.kafka_cleanshutdown") is clean_before
        assert {log.log_end_offset for log in started(files).logs.values()} == {10}

    def test_more_segments_than_one_flush_takes(self) -> None:
        files = MemoryFiles()
        manager = started(files)
        log = manager.get_or_create("t", 0, TOPIC_ID, log_config(segment_bytes=100))
        fill(log, 150)
        assert log.segments_count == 150
        manager.close_all()
        assert offsets_in(files, "recovery-point-offset-checkpoint") == {("t", 0): 150}
        files.crash()
        assert started(files).logs["t", 0].log_end_offset == 150
