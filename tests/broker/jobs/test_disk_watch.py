"""jobs.disk_watch: data folders that fail while the broker runs or before it starts, as their clients see it."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from gregor.broker.node.store import StartError
from gregor.broker.wiring import Node
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import MetadataRequest
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.nodes import CLUSTER_ID
from gregor.storage.folders.data_folder import DataFolder
from gregor.storage.log.log import Log
from gregor.storage.recovery.recovery import FolderLoader
from tests.broker.harness import Harness, batch, fetch_request, running

FAILED = ErrorCode.KAFKA_STORAGE_ERROR
QUICK = {"replica_high_watermark_checkpoint_interval_ms": "20"}


def folders(base: Path) -> str:
    return ",".join(str(base / name) for name in ("a", "b"))


def started(base: Path, **settings: str) -> Harness:
    return Harness(base / "a", log_dirs=folders(base), **{**QUICK, **settings}).start()


def partitions_in(harness: Harness, folder: Path) -> list[int]:
    """Return the topic's partitions that lie in a data folder."""
    logs = harness.broker.logs
    return sorted(log.partition for log in logs.logs.values() if logs.folder_of(log) == str(folder))


def led(harness: Harness) -> dict[int, tuple[int, list[int]]]:
    """(leader, offline replicas) of each partition in the metadata of clients."""
    (topic,) = harness.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="orders")]), 12).topics
    return {part.partition_index: (part.leader_id, part.offline_replicas) for part in topic.partitions}


def errors(harness: Harness) -> dict[int, tuple[int, int]]:
    """The error codes of produce and fetch for each partition."""
    return {
        index: (
            harness.produce("orders", b"x", partition=index).error_code,
            harness.fetch("orders", 0, partition=index).error_code,
        )
        for index in range(4)
    }


def filled(base: Path) -> Harness:
    harness = started(base)
    harness.create_topic("orders", partitions=4)
    for index in range(4):
        harness.produce("orders", b"first", partition=index)
    return harness


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals that the broker sends itself."""
    signals: list[int] = []
    monkeypatch.setattr("gregor.broker.wiring.signal.raise_signal", signals.append)
    return signals


def test_a_folder_that_goes_away_takes_only_its_partitions_offline(
    tmp_path: Path, ended: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    harness = filled(tmp_path)
    lost = partitions_in(harness, tmp_path / "b")
    kept = partitions_in(harness, tmp_path / "a")
    assert len(lost) == len(kept) == 2
    waiting = harness.begin(fetch_request([("orders", lost[0], 1)], max_wait_ms=9000), 12)
    (tmp_path / "b").rename(tmp_path / "away")
    harness.until(lambda: [leader for leader, _ in led(harness).values()].count(-1) == 2)
    assert led(harness) == {index: (-1, [0]) if index in lost else (0, []) for index in range(4)}
    assert errors(harness) == {index: (FAILED, FAILED) if index in lost else (0, 0) for index in range(4)}
    assert harness.run(waiting).responses[0].partitions[0].error_code == FAILED
    said = [record.message for record in caplog.records if "its 2 partitions are offline" in record.message]
    assert len(said) == 1
    assert str(tmp_path / "b") in said[0]
    # New partitions go where there is a folder, and the rest of the broker's life is as ever.
    harness.create_topic("more", partitions=2)
    assert sorted(path.name for path in (tmp_path / "a").glob("more-*")) == ["more-0", "more-1"]
    assert not ended
    harness.stop()
    # The folder is back: everything is there, including the records that were written meanwhile.
    (tmp_path / "away").rename(tmp_path / "b")
    harness = started(tmp_path)
    assert {index: len(harness.records("orders", partition=index)) for index in range(4)} == {
        index: 1 if index in lost else 2 for index in range(4)
    }
    assert led(harness) == dict.fromkeys(range(4), (0, []))
    harness.stop()


def test_a_broken_device_needs_no_second_look(
    tmp_path: Path, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = filled(tmp_path)
    lost = partitions_in(harness, tmp_path / "b")
    monkeypatch.setattr(DataFolder, "probe", lambda self: pytest.fail("tried out"))
    log = harness.broker.logs.logs["orders", lost[0]]
    harness.broker.logs.log_failed(log, OSError(errno.EIO, "Input/output error"))
    harness.turn()
    assert harness.produce("orders", b"x", partition=lost[1]).error_code == FAILED
    harness.stop()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_partitions_that_go_offline_in_turns_take_nothing_from_the_first_on(
    tmp_path: Path, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gregor.broker.jobs.turns.TURN_S", -1.0)  # time is up after each
    harness = filled(tmp_path)
    lost = partitions_in(harness, tmp_path / "b")
    partitions = [harness.broker.replicas.partitions["orders", index] for index in lost]
    left: list[int] = []

    async def fail() -> None:
        log = partitions[0].log
        assert log is not None
        harness.broker.logs.log_failed(log, OSError(errno.EIO, "Input/output error"))
        await asyncio.sleep(0)
        while not left or left[-1]:
            left.append(sum(partition.log is not None for partition in partitions))
            for partition in partitions:
                with pytest.raises(KafkaError) as refused:
                    partition.append(batch(b"x"), harness.broker.now_ms(), 1)
                assert refused.value.code == FAILED
            await asyncio.sleep(0)

    harness.run(fail())
    assert {2, 1, 0} == set(left)
    harness.until(lambda: [leader for leader, _ in led(harness).values()].count(-1) == 2)
    harness.stop()


def test_a_bad_file_takes_only_its_partition_offline(tmp_path: Path, ended: list[int]) -> None:
    harness = filled(tmp_path)
    first, second = partitions_in(harness, tmp_path / "b")
    log = harness.broker.logs.logs["orders", first]
    harness.broker.logs.log_failed(log, PermissionError(errno.EACCES, "Permission denied"))
    harness.until(lambda: led(harness)[first] == (-1, [0]))
    assert errors(harness) == {index: (FAILED, FAILED) if index == first else (0, 0) for index in range(4)}
    assert led(harness)[second] == (0, [])
    harness.stop()


def test_an_error_of_a_folder_that_works_is_logged_with_the_folder(
    tmp_path: Path, ended: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    harness = filled(tmp_path)
    folder = harness.broker.logs.folders[0]
    harness.broker.logs.disk_errors.report(folder, None, PermissionError(errno.EACCES, "Permission denied", "a-file"))
    harness.until(lambda: "Permission denied: 'a-file'" in caplog.text)
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert line.startswith(f"{folder.path} stays online") and "Check owner and permissions" in line
    harness.stop()


def test_limits_of_the_process_take_nothing_offline(
    tmp_path: Path, ended: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    harness = filled(tmp_path)
    log = harness.broker.logs.logs["orders", 0]
    harness.broker.logs.log_failed(log, OSError(errno.EMFILE, "Too many open files"))
    harness.turn()
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert line.startswith(f"{log.directory} stays online") and "Too many open files" in line and "ulimit -n" in line
    assert errors(harness) == dict.fromkeys(range(4), (0, 0))
    harness.stop()


def test_a_log_that_a_limit_of_the_process_has_taken_offline_is_led_elsewhere(tmp_path: Path, ended: list[int]) -> None:
    harness = filled(tmp_path)
    log = harness.broker.logs.logs["orders", 0]
    log.retire()  # as where a failed write could not be undone
    harness.broker.logs.log_failed(log, OSError(errno.EMFILE, "Too many open files"))
    harness.until(lambda: led(harness)[0] == (-1, [0]))
    assert errors(harness) == {index: (FAILED, FAILED) if index == 0 else (0, 0) for index in range(4)}
    harness.stop()


def test_without_any_folder_left_the_broker_ends(tmp_path: Path, ended: list[int]) -> None:
    harness = filled(tmp_path)
    for name in ("a", "b"):
        (log, *_) = [
            log for log in harness.broker.logs.logs.values() if log.directory.startswith(f"{tmp_path}/{name}/")
        ]
        assert not ended
        harness.broker.logs.log_failed(log, OSError(errno.EROFS, "Read-only file system"))
        harness.turn()
    assert len(ended) == 1
    assert harness.node.failed
    harness.stop()


def test_a_folder_that_cannot_be_used_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = filled(tmp_path)
    lost = partitions_in(harness, tmp_path / "b")
    harness.stop()
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_text("not a folder")
    harness = started(tmp_path)
    assert led(harness) == {index: (-1, [0]) if index in lost else (0, []) for index in range(4)}
    assert errors(harness) == {index: (FAILED, FAILED) if index in lost else (0, 0) for index in range(4)}
    assert f"{tmp_path / 'b'} cannot be used" in caplog.text
    assert sorted(path.name for path in (tmp_path / "a").glob("orders-*")) == sorted(
        f"orders-{index}" for index in range(4) if index not in lost
    )
    harness.create_topic("more")
    harness.stop()
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    with running(tmp_path / "a", log_dirs=folders(tmp_path)) as harness:
        assert errors(harness) == dict.fromkeys(range(4), (0, 0))


def test_without_the_folder_of_the_metadata_nothing_is_begun_anew(tmp_path: Path) -> None:
    filled(tmp_path).stop()
    (tmp_path / "a").rename(tmp_path / "away")
    (tmp_path / "a").write_text("not a folder")
    harness = Harness(tmp_path / "a", log_dirs=folders(tmp_path))
    with pytest.raises(StartError, match="metadata store is in none of the data folders"):
        harness.run(harness.node.open_storage())
    harness.stop()
    assert not list((tmp_path / "b").glob("gregor-metadata*"))


def test_the_metadata_is_not_opened_in_a_folder_that_failed_at_its_identity(tmp_path: Path) -> None:
    filled(tmp_path).stop()
    (tmp_path / "a" / "meta.properties").unlink()
    (tmp_path / "a" / "meta.properties").mkdir()
    harness = Harness(tmp_path / "a", log_dirs=folders(tmp_path))
    with pytest.raises(StartError, match="metadata store is in none of the data folders"):
        harness.run(harness.node.open_storage())
    harness.stop()


def test_a_broken_node_is_named_at_the_start(tmp_path: Path) -> None:
    async def broken() -> None:
        store = EmbeddedStore(f"{tmp_path}/{FILE_NAME}")
        await store.start()
        await store.create(CLUSTER_ID, b"damaged", make_parents=True)
        await store.close()

    harness = Harness(tmp_path)
    harness.run(broken())
    with pytest.raises(StartError, match="correct its value or delete it: /cluster/id"):
        harness.run(harness.node.open_storage())
    harness.stop()


def test_the_metadata_is_found_when_the_folders_are_named_in_another_order(tmp_path: Path) -> None:
    filled(tmp_path).stop()
    order = ",".join(reversed(folders(tmp_path).split(",")))
    with running(tmp_path / "a", log_dirs=order) as harness:
        assert errors(harness) == dict.fromkeys(range(4), (0, 0))


def test_without_any_folder_there_is_no_start(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("not a folder")
    node = Node(BrokerConfig({"log.dirs": folders(tmp_path)}))
    harness = Harness(tmp_path / "c")
    with pytest.raises(StartError, match="check log.dirs"):
        harness.run(node.open_storage())
    harness.run(node.close())
    harness.stop()


@pytest.mark.parametrize("late", [False, True], ids=["before serving", "while serving"])
@pytest.mark.parametrize("both", [False, True], ids=["one folder", "both folders"])
def test_a_disk_that_fails_while_its_logs_are_loaded_takes_its_folder_offline(
    tmp_path: Path, ended: list[int], monkeypatch: pytest.MonkeyPatch, late: bool, both: bool
) -> None:
    """As in Apache Kafka: all partitions of the data folder, not the one alone whose file could not be read."""
    harness = filled(tmp_path)
    lost = partitions_in(harness, tmp_path / "b")
    harness.stop()
    load = FolderLoader.load
    gate: list[bool] = [] if late else [True]

    def failing(self: FolderLoader, clean: bool) -> Generator[int, None, Log]:
        while not gate:
            time.sleep(0.001)  # long enough for the manager to give others a turn
            yield 0
        if both or self._directory == f"{tmp_path}/b/orders-{lost[0]}":
            raise OSError(errno.EIO, "Input/output error")
        return (yield from load(self, clean))

    monkeypatch.setattr(FolderLoader, "load", failing)
    monkeypatch.setattr("gregor.broker.wiring._LOAD_BEFORE_SERVING_S", 0 if late else 60)
    if both and not late:
        with pytest.raises(StartError, match="Input/output error"):
            started(tmp_path)
        return
    harness = started(tmp_path)
    if late:
        gate.append(True)
    harness.until(lambda: harness.node.loading.is_over)
    if both:
        harness.until(lambda: bool(ended))
    else:
        harness.until(lambda: [leader for leader, _ in led(harness).values()].count(-1) == 2)
        assert errors(harness) == {index: (FAILED, FAILED) if index in lost else (0, 0) for index in range(4)}
        assert [folder.failure is not None for folder in harness.broker.logs.folders] == [False, True]
        assert not ended
    harness.stop()
