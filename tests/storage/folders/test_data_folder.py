"""A data folder's small files, and the kinds of content that it distinguishes."""

from __future__ import annotations

import errno
import json
import logging
from pathlib import Path

import pytest

from gregor.protocol.ids import uuid_from_text
from gregor.storage.folders.data_folder import RESERVE_BYTES, DataFolder
from gregor.storage.folders.identity import MetaProperties
from gregor.storage.folders.names import FolderKind, PartitionFolder
from gregor.storage.fs.files import OsFiles
from gregor.storage.fs.folder_lock import FolderInUse
from tests.storage.memory_files import MemoryFiles

PATH = "/data"
MARKER = f"{PATH}/.kafka_cleanshutdown"


def folder_with(**small_files: bytes) -> tuple[DataFolder, MemoryFiles]:
    files = MemoryFiles()
    files.make_directory(PATH)
    for name, data in small_files.items():
        files.write_atomically(f"{PATH}/{name}", data)
    return DataFolder(PATH, files), files


class TestMarker:
    def test_a_folder_without_it_was_not_closed(self) -> None:
        folder, _ = folder_with()
        assert folder.remove_clean_marker() is False

    @pytest.mark.parametrize("content", [b"", b'{"version":0,"brokerEpoch":17}', b"anything"])
    def test_it_counts_once_whatever_it_holds(self, content: bytes) -> None:
        folder, files = folder_with(**{".kafka_cleanshutdown": content})
        assert folder.remove_clean_marker() is True
        files.crash()
        assert DataFolder(PATH, files).remove_clean_marker() is False

    def test_it_is_written_as_kafka_writes_it(self) -> None:
        folder, files = folder_with()
        folder.put_clean_marker(17)
        assert files.read_bytes(MARKER) == b'{"version":0,"brokerEpoch":17}'
        assert json.loads(files.read_bytes(MARKER)) == {"version": 0, "brokerEpoch": 17}
        files.crash()
        assert folder.remove_clean_marker() is True


class TestCheckpoints:
    def test_all_three_are_read(self) -> None:
        folder, _ = folder_with(
            **{
                "recovery-point-offset-checkpoint": b"0\n1\nt 0 5\n",
                "log-start-offset-checkpoint": b"0\n1\nt 0 2\n",
                "replication-offset-checkpoint": b"0\n1\nt 0 4\n",
            }
        )
        folder.read_checkpoints()
        assert folder.recovery_points == {("t", 0): 5}
        assert folder.log_start_offsets == {("t", 0): 2}
        assert folder.high_watermarks == {("t", 0): 4}

    def test_a_malformed_one_counts_as_empty_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        folder, _ = folder_with(**{"recovery-point-offset-checkpoint": b"0\n1\nt 0\n"})
        folder.read_checkpoints()
        assert folder.recovery_points == {}
        assert "/data/recovery-point-offset-checkpoint, line 3" in caplog.text


class TestPartitions:
    def test_kinds_are_told_apart(self, caplog: pytest.LogCaptureFixture) -> None:
        folder, files = folder_with()
        for name in ("b-0", "a-1", "a-0.0123-delete", "a-0.0123-stray", "a-0.0123-future", "lost+found", "oops-x"):
            files.make_directory(f"{PATH}/{name}")
        files.make_directory(f"{PATH}/__cluster_metadata-0")
        files.create(f"{PATH}/c-0")
        with caplog.at_level(logging.WARNING):
            partitions, copies, marked = folder.list_partitions()
        assert partitions == [
            ("/data/a-1", PartitionFolder("a", 1, FolderKind.CURRENT)),
            ("/data/b-0", PartitionFolder("b", 0, FolderKind.CURRENT)),
        ]
        assert copies == [("/data/a-0.0123-future", PartitionFolder("a", 0, FolderKind.FUTURE))]
        assert marked == ["/data/a-0.0123-delete"]
        strangers = [record.message for record in caplog.records if "no partitions" in record.message]
        assert strangers == [
            "/data holds folders that are no partitions, left alone: __cluster_metadata-0, lost+found, oops-x"
        ]
        assert sum("set aside" in record.message for record in caplog.records) == 1

    def test_topic_ids(self, caplog: pytest.LogCaptureFixture) -> None:
        folder, files = folder_with()
        files.make_directory(f"{PATH}/t-0")
        assert folder.read_topic_id(f"{PATH}/t-0") is None
        metadata = f"{PATH}/t-0/partition.metadata"
        files.write_atomically(metadata, b"version: 0\ntopic_id: ST_DYboMSwu29fD6Z_eltQ")
        assert folder.read_topic_id(f"{PATH}/t-0") == uuid_from_text("ST_DYboMSwu29fD6Z_eltQ")
        assert not caplog.records
        files.write_atomically(metadata, b"")
        assert folder.read_topic_id(f"{PATH}/t-0") is None
        assert metadata in caplog.text


def test_meta_properties_round_trip() -> None:
    folder, _ = folder_with()
    assert folder.read_meta() is None
    folder.write_meta(MetaProperties(0, 3, "c"), 0)
    assert folder.read_meta() == MetaProperties(0, 3, "c")


def test_locking_makes_the_folder(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "data")
    folder, other = DataFolder(path, OsFiles()), DataFolder(path, OsFiles())
    folder.lock()
    with pytest.raises(FolderInUse, match="data is locked by another process"):
        other.lock()
    other.unlock()
    folder.unlock()
    other.lock()
    other.unlock()


class TestReserve:
    def test_it_is_as_large_as_there_is_room_for(self) -> None:
        folder, files = folder_with()
        folder.keep_reserve()
        assert len(files.read_bytes(f"{PATH}/.gregor-reserve")) == RESERVE_BYTES
        folder.release_reserve()
        assert not files.exists(f"{PATH}/.gregor-reserve")
        for times in range(2):
            files.fail("reserve", after=times, error=OSError(errno.ENOSPC, "full"))
        folder.keep_reserve()
        assert len(files.read_bytes(f"{PATH}/.gregor-reserve")) == RESERVE_BYTES // 4

    def test_no_room_at_all_is_no_error(self) -> None:
        folder, files = folder_with()
        files.break_folder(PATH, OSError(errno.ENOSPC, "full"))
        folder.keep_reserve()
        folder.release_reserve()

    def test_whether_something_could_be_written(self) -> None:
        folder, files = folder_with()
        assert folder.has_room_for(1000)
        files.fail("reserve", error=OSError(errno.EDQUOT, "over quota"))
        assert not folder.has_room_for(1000)
        assert files.list_directory(PATH) == []

    def test_a_probe_says_what_is_wrong_with_the_folder(self) -> None:
        folder, files = folder_with()
        assert folder.probe() is None
        assert files.list_directory(PATH) == []
        for error, expected in ((errno.EIO, errno.EIO), (errno.ENOSPC, None), (errno.EMFILE, None)):
            files.break_folder(PATH, OSError(error, "made to fail"))
            found = folder.probe()
            assert (found and found.errno) == expected
            files.mend_folder(PATH)
