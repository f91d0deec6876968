"""A disk without room: a small tmpfs is the volume of the data folder.

The broker serves the data that exists, loses nothing that it acknowledged, does not crash, and accepts writes again
when there is room. The test's own file, `ballast`, uses up the room and frees it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.broker.handlers.test_consumer_groups import Member, describe, settle
from tests.broker.harness import Harness, records_of
from tests.support.volumes import mounted

pytestmark = pytest.mark.slow

FULL = ErrorCode.KAFKA_STORAGE_ERROR
SIZE_BYTES = 12 * 1024 * 1024
CHUNK_BYTES = 100_000
QUICK = {
    "replica_high_watermark_checkpoint_interval_ms": "20",
    "log_flush_offset_checkpoint_interval_ms": "20",
    "log_retention_check_interval_ms": "3600000",
    "offsets_topic_num_partitions": "1",
    "group_consumer_assignment_interval_ms": "0",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", SIZE_BYTES) as folder:
        yield folder


@pytest.fixture
def harness(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setattr("gregor.broker.jobs.disk_watch._POLL_EVERY_S", 0.02)
    monkeypatch.setattr("gregor.broker.wiring.signal.raise_signal", lambda signal: pytest.fail("the broker gives up"))
    harness = started(disk)
    harness.until(lambda: (disk / "data/.gregor-reserve").exists())
    yield harness
    if not harness.loop.is_closed():
        harness.stop()


def started(disk: Path) -> Harness:
    return Harness(disk / "data", **QUICK).start()


def fill(disk: Path) -> None:
    """Not a byte of room is left."""
    with open(disk / "ballast", "ab", buffering=0) as ballast:
        size = 65536
        while size:
            try:
                ballast.write(bytes(size))
            except OSError:
                size //= 2


def make_room(disk: Path) -> None:
    (disk / "ballast").unlink()


def lines(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.message for record in caplog.records)


def is_full(harness: Harness) -> bool:
    return harness.broker.logs.folders[0].full


def values(harness: Harness, topic: str) -> list[bytes]:
    return [record.value or b"" for record in harness.records(topic)]


def test_writes_wait_and_reads_go_on(harness: Harness, disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gregor")
    harness.create_topic("orders", partitions=2)
    harness.produce("orders", b"before")
    fill(disk)
    acknowledged = [b"before"]
    refused = 0
    for number in range(30):
        value = b"%d" % number * 1000
        answer = harness.produce("orders", value)
        assert answer.error_code in (0, FULL)
        if answer.error_code:
            refused += 1
        else:
            acknowledged.append(value)
    assert refused >= 20
    assert harness.produce("orders", bytes(50_000), partition=1).error_code == FULL
    assert values(harness, "orders") == acknowledged
    # Periodic jobs run into it, too; one log line reports all of it.
    begin = time.monotonic()
    harness.until(lambda: time.monotonic() > begin + 0.2)
    assert lines(caplog, "is full") == 1
    assert [record for record in caplog.records if record.levelname == "ERROR"] == [
        record for record in caplog.records if "is full" in record.message
    ]
    assert harness.broker.logs.failed == {}

    make_room(disk)
    assert harness.produce("orders", b"after").error_code == 0
    harness.until(lambda: not is_full(harness))
    assert lines(caplog, "has room again") == 1
    assert values(harness, "orders") == [*acknowledged, b"after"]
    # The next time, it is reported again.
    fill(disk)
    while not harness.produce("orders", bytes(5000)).error_code:
        pass
    harness.turn()
    assert lines(caplog, "is full") == 2


def test_writing_resumes_though_retention_fails(
    harness: Harness, disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("orders")

    def fail(now_ms: int) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(harness.broker.logs, "prefetching_ages", fail)
    fill(disk)
    while not harness.produce("orders", bytes(5000)).error_code:
        pass
    harness.until(lambda: lines(caplog, "retention on the full") == 1)
    make_room(disk)
    harness.until(lambda: not is_full(harness), 10)
    assert harness.produce("orders", b"after").error_code == 0


def test_retention_makes_room_with_what_is_due_and_nothing_else(harness: Harness, disk: Path) -> None:
    harness.create_topic("due", segment_bytes="1048576", retention_bytes="2000000", file_delete_delay_ms="3600000")
    harness.create_topic("kept", segment_bytes="1048576", retention_bytes="-1", retention_ms="-1")
    for topic in ("due", "kept"):
        for _ in range(30):
            assert harness.produce(topic, os.urandom(CHUNK_BYTES)).error_code == 0
    kept = len(values(harness, "kept"))
    due = harness.broker.logs.logs["due", 0]
    assert due.size_bytes > 2_900_000
    fill(disk)
    while not harness.produce("kept", os.urandom(CHUNK_BYTES)).error_code:
        kept += 1
    harness.until(lambda: harness.produce("kept", os.urandom(CHUNK_BYTES)).error_code == 0)
    kept += 1
    assert 900_000 < due.size_bytes < 2_100_000
    assert len(values(harness, "kept")) == kept
    first = harness.fetch("due", due.log_start_offset)
    assert records_of(first)[0].offset == due.log_start_offset > 0


def test_a_log_that_is_due_as_a_whole_goes_on_a_full_disk(harness: Harness, disk: Path) -> None:
    harness.create_topic("due", retention_ms="1", file_delete_delay_ms="3600000")
    for _ in range(20):
        harness.produce("due", os.urandom(CHUNK_BYTES), timestamp_ms=harness.broker.now_ms())
    fill(disk)
    assert harness.produce("due", bytes(CHUNK_BYTES)).error_code == FULL
    harness.until(lambda: harness.broker.logs.logs["due", 0].log_start_offset == 20)
    harness.until(lambda: harness.produce("due", bytes(CHUNK_BYTES)).error_code == 0)


def test_groups_are_told_to_come_back_and_lose_nothing(harness: Harness, disk: Path) -> None:
    harness.create_topic("orders")
    harness.until(lambda: harness.ask(ListGroupsRequest(), 0).error_code == 0)
    harness.until(lambda: commit(harness, 1) == 0)
    fill(disk)
    codes = [commit(harness, 2, b"x" * 1000) for _ in range(30)]
    assert set(codes) == {0, ErrorCode.NOT_COORDINATOR}
    assert committed(harness) == 2
    make_room(disk)
    assert commit(harness, 3) == 0
    harness.stop()
    again = started(disk)
    again.until(lambda: committed(again) == 3)
    again.stop()


def commit(harness: Harness, offset: int, metadata: bytes = b"") -> int:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata.decode()
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[part])
    answer = harness.ask(OffsetCommitRequest(group_id="readers", topics=[topic]), 8)
    code: int = answer.topics[0].partitions[0].error_code
    if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR) and offset == 1:
        harness.run(harness.broker.topic_creator.create("__consumer_offsets"))
    return code


def committed(harness: Harness) -> int:
    wanted = OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="readers", topics=[wanted])
    (answer,) = harness.ask(OffsetFetchRequest(groups=[group]), 8).groups
    return answer.topics[0].partitions[0].committed_offset if answer.error_code == 0 else -1


def test_a_topic_made_on_a_full_disk_is_usable_when_there_is_room(harness: Harness, disk: Path) -> None:
    harness.create_topic("orders")
    fill(disk)
    while not harness.produce("orders", bytes(5000)).error_code:
        pass
    topic = CreateTopicsRequest.CreatableTopic(name="new", num_partitions=3, replication_factor=1)
    asked = harness.begin(CreateTopicsRequest(topics=[topic], timeout_ms=200), 7)
    begin = time.monotonic()
    harness.until(lambda: asked.done() or time.monotonic() > begin + 1)
    make_room(disk)
    (made,) = harness.run(asked).topics
    if made.error_code:  # it was refused, and can be made now
        harness.until(lambda: not is_full(harness))
        if harness.broker.metadata.topic("new") is None:
            harness.create_topic("new", partitions=3)
    harness.until(lambda: all(harness.produce("new", b"x", partition=index).error_code == 0 for index in range(3)))


def test_topics_can_be_deleted_to_make_room(harness: Harness, disk: Path) -> None:
    for name in ("large", "kept"):
        harness.create_topic(name, file_delete_delay_ms="0")
    for _ in range(30):
        harness.produce("large", os.urandom(CHUNK_BYTES))
    fill(disk)
    while not harness.produce("kept", bytes(5000)).error_code:
        pass
    for version, name in ((5, "large"), (5, "absent")):
        answer = harness.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), version)
        assert answer.responses[0].error_code == (0 if name == "large" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    harness.until(lambda: harness.produce("kept", bytes(5000)).error_code == 0)
    harness.create_topic("more")


@pytest.mark.parametrize("crash", [False, True])
def test_a_stop_and_a_start_on_a_full_disk(harness: Harness, disk: Path, tmp_path: Path, crash: bool) -> None:
    harness.create_topic("orders")
    produced = 0
    records = {"producer_id": 7, "producer_epoch": 0}
    for number in range(5):
        assert harness.produce("orders", b"%d" % number, base_sequence=number, **records).error_code == 0
        produced += 1
    fill(disk)
    while not harness.produce("orders", bytes(5000), base_sequence=produced, **records).error_code:
        produced += 1
    if crash:
        copy = harness.copy(tmp_path / "copy")
        harness.stop()
        make_room(disk)
        shutil.rmtree(disk / "data")
        shutil.copytree(copy, disk / "data")
        (disk / "data/.kafka_cleanshutdown").unlink(missing_ok=True)
        fill(disk)
        (disk / "data/.gregor-reserve").unlink(missing_ok=True)
        shutil.rmtree(copy)
    else:
        harness.stop()
        assert (disk / "data/.kafka_cleanshutdown").exists()
    again = started(disk)
    assert len(again.records("orders")) == produced
    assert again.produce("orders", bytes(3_000_000), base_sequence=produced, **records).error_code in (
        FULL,
        ErrorCode.MESSAGE_TOO_LARGE,
    )
    if (disk / "ballast").exists():
        make_room(disk)
    again.until(lambda: not is_full(again))
    # The producer's state outlived it: a repetition is recognised, the next batch is appended.
    repeated = again.produce("orders", b"4", base_sequence=4, **records) if produced == 5 else None
    assert repeated is None or repeated.base_offset == 4
    assert again.produce("orders", b"next", base_sequence=produced, **records).base_offset == produced
    again.stop()


HISTORY = "__gregor_rebalances"


def joined(member: Member) -> int:
    """Join a consumer group, and return the error; the group's coordinator is there."""
    code: int = member.join().error_code
    return code


def test_consumer_groups_keep_their_state_on_a_full_disk(harness: Harness, disk: Path) -> None:
    harness.create_topic("orders", partitions=4)
    first = Member(harness, "readers", "orders")
    harness.until(lambda: joined(first) == 0)
    settle(first)
    fill(disk)
    while not harness.produce("orders", bytes(5000)).error_code:
        pass
    # A heartbeat that changes nothing is answered; one that needs a record has the error on which a member tries again.
    assert first.beat().error_code == 0
    newcomers = [Member(harness, "readers", "orders") for _ in range(200)]
    codes = {joined(member) for member in newcomers}
    assert ErrorCode.NOT_COORDINATOR in codes <= {0, ErrorCode.NOT_COORDINATOR}
    refused = newcomers[-1]
    assert refused.epoch == 0
    assert first.beat().error_code in (0, ErrorCode.NOT_COORDINATOR)
    (group,) = describe(harness, "readers")
    members = {member.member_id for member in group.members}
    assert first.member_id in members and refused.member_id not in members

    make_room(disk)
    harness.until(lambda: not is_full(harness))
    assert joined(refused) == 0
    # The last room may have sufficed to admit a member, but not to answer it: it tries again, as the same member.
    half = [member for member in newcomers if not member.epoch and member.member_id in members]
    assert [joined(member) for member in half] == [0] * len(half)
    admitted = {member.member_id for member in (first, *newcomers) if member.epoch}
    (group,) = describe(harness, "readers")
    assert {member.member_id for member in group.members} == admitted
    harness.stop()
    again = started(disk)
    again.until(lambda: not describe(again, "readers")[0].error_code)
    (group,) = describe(again, "readers")
    assert {member.member_id for member in group.members} == admitted
    again.stop()


def test_history_of_rebalances_waits_for_room_and_does_not_delay_groups(harness: Harness, disk: Path) -> None:
    harness.create_topic("orders")
    member = Member(harness, "readers", "orders")
    harness.until(lambda: joined(member) == 0)
    settle(member)
    harness.until(lambda: harness.broker.metadata.partition_count(HISTORY) > 0)
    harness.until(lambda: written(harness) > 0)
    fill(disk)
    while not harness.produce("orders", bytes(5000)).error_code:
        pass
    before = written(harness)
    others = [Member(harness, f"others-{number}", "orders") for number in range(100)]
    assert ErrorCode.NOT_COORDINATOR in {joined(other) for other in others}
    other = others[-1]
    make_room(disk)
    harness.until(lambda: not is_full(harness))
    harness.until(lambda: joined(other) == 0)
    settle(other)
    harness.until(lambda: written(harness) > before)


def written(harness: Harness) -> int:
    """Return the number of records in the history."""
    logs = harness.broker.logs.logs
    return sum(log.log_end_offset for (topic, _), log in logs.items() if topic == HISTORY)
