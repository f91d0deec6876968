"""ListOffsets: special times and the versions that know them, times, errors. After Kafka's ReplicaManager."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from gregor.protocol.records.batch import Record, build_batch
from tests.broker.harness import Harness, batch, produce_request

VERSIONS = range(1, 12)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
UNKNOWN = (-1, -1, -1)


@pytest.fixture(scope="module")
def day(harness: Harness) -> int:
    """Start of a topic "times": three batches, of the minutes 1, 2, 3; 5, 4; and 9 after this time."""
    start_ms = harness.broker.now_ms() - 86_400_000
    harness.create_topic("times")
    for minutes in ((1, 2, 3), (5, 4), (9,)):
        records = timed_batch(*[start_ms + minute * 60_000 for minute in minutes])
        assert harness.ask(produce_request("times", records), 9).responses[0].partition_responses[0].error_code == 0
    return start_ms


def timed_batch(*timestamps_ms: int, compression: int = 0) -> bytes:
    records = [Record(offset, time, None, b"x", []) for offset, time in enumerate(timestamps_ms)]
    return bytes(build_batch(records, compression=compression))


def partitions_of(response: ListOffsetsResponse) -> list[ListOffsetsResponse.ListOffsetsPartitionResponse]:
    return [partition for topic in response.topics for partition in topic.partitions]


def request(topic: str, *times: int, partition: int = 0, epoch: int = -1, replica_id: int = -1) -> ListOffsetsRequest:
    make = ListOffsetsRequest.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[make(partition_index=partition, timestamp=time, current_leader_epoch=epoch)],
            )
            for time in times
        ],
    )


def find(harness: Harness, topic: str, time: int, version: int = 11) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch), without an error."""
    (found,) = partitions_of(harness.ask(request(topic, time), version))
    assert found.error_code == 0
    return found.timestamp, found.offset, found.leader_epoch


def error(harness: Harness, version: int, wanted: ListOffsetsRequest) -> ErrorCode:
    (found,) = partitions_of(harness.ask(wanted, version))
    assert (found.timestamp, found.offset, found.leader_epoch) == UNKNOWN
    return ErrorCode(found.error_code)


@pytest.mark.parametrize("version", VERSIONS)
def test_latest_and_earliest(harness: Harness, day: int, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert find(harness, "times", LATEST, version) == (-1, 6, epoch)
    assert find(harness, "times", EARLIEST, version) == (-1, 0, epoch)


@pytest.mark.parametrize("version", VERSIONS)
def test_by_time(harness: Harness, day: int, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    for minute, (found_minute, offset) in {0: (1, 0), 2: (2, 1), 3: (3, 2), 4: (5, 3), 5: (5, 3), 6: (9, 5)}.items():
        expected = (day + found_minute * 60_000, offset, epoch)
        assert find(harness, "times", day + minute * 60_000, version) == expected, minute
    assert find(harness, "times", day + 9 * 60_000 + 1, version) == UNKNOWN
    assert find(harness, "times", 0, version)[1] == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("time", "since"),
    [
        (LATEST, 1),
        (EARLIEST, 1),
        (MAX_TIMESTAMP, 7),
        (EARLIEST_LOCAL, 8),
        (LATEST_TIERED, 9),
        (EARLIEST_PENDING_UPLOAD, 11),
        (-7, 99),
        (-(2**63), 99),
    ],
)
def test_special_times_are_known_from_a_version_on(
    harness: Harness, day: int, version: int, time: int, since: int
) -> None:
    (found,) = partitions_of(harness.ask(request("times", time), version))
    assert found.error_code == (0 if version >= since else ErrorCode.UNSUPPORTED_VERSION)


def test_the_newer_special_times(harness: Harness, day: int) -> None:
    assert find(harness, "times", MAX_TIMESTAMP) == (day + 9 * 60_000, 5, 0)
    assert find(harness, "times", EARLIEST_LOCAL) == (-1, 0, 0)
    assert find(harness, "times", LATEST_TIERED) == UNKNOWN
    assert find(harness, "times", EARLIEST_PENDING_UPLOAD) == UNKNOWN


def test_an_empty_log(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    assert find(harness, topic, LATEST) == (-1, 0, 0)
    assert find(harness, topic, EARLIEST) == (-1, 0, 0)
    assert find(harness, topic, MAX_TIMESTAMP) == UNKNOWN
    assert find(harness, topic, 5) == UNKNOWN


def test_after_the_log_start_moved(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    for minute in (1, 2, 3):
        harness.produce(topic, b"x", timestamp_ms=harness.broker.now_ms() - 10_000_000 + minute)
    log = harness.broker.logs.get(topic, 0)
    assert log is not None
    log.retention.advance_log_start_offset(2)
    assert find(harness, topic, EARLIEST) == (-1, 2, 0)
    assert find(harness, topic, 0)[1] == 2


def test_compressed_batches_are_looked_into(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    start_ms = harness.broker.now_ms() - 1000
    for codec in range(5):
        times = [start_ms + codec * 10 + number for number in range(3)]
        harness.ask(produce_request(topic, timed_batch(*times, compression=codec)), 9)
    for codec in range(5):
        assert find(harness, topic, start_ms + codec * 10 + 1) == (start_ms + codec * 10 + 1, codec * 3 + 1, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_errors(harness: Harness, day: int, topic: str, version: int) -> None:
    assert error(harness, version, request("absent", LATEST)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error(harness, version, request("times", LATEST, partition=3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.create_topic(topic)
    harness.hand_over(topic)
    assert error(harness, version, request(topic, LATEST)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", range(4, 12))
def test_the_clients_idea_of_the_leader_epoch(harness: Harness, day: int, version: int) -> None:
    assert error(harness, version, request("times", LATEST, epoch=1)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partitions_of(harness.ask(request("times", LATEST, epoch=0), version))[0].offset == 6


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_that_is_named_twice_is_refused(harness: Harness, day: int, version: int) -> None:
    found = partitions_of(harness.ask(request("times", LATEST, EARLIEST), version))
    assert [one.error_code for one in found] == [ErrorCode.INVALID_REQUEST] * len(found)
    assert found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_leader_does_not_tell_an_offset_that_could_go_backwards(
    harness: Harness, topic: str, version: int
) -> None:
    harness.create_topic(topic)
    harness.add_follower(topic)
    harness.ask(produce_request(topic, batch(b"not committed")), 9)
    harness.hand_over(topic)
    harness.add_follower(topic)  # leads again: its epoch begins at 1, the high watermark is 0
    expected = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    now_ms = harness.broker.now_ms()
    for time in (LATEST, now_ms - 3_600_000, now_ms + 3_600_000):
        assert error(harness, version, request(topic, time)) == expected
    assert find(harness, topic, EARLIEST, version)[1] == 0, "that is known"


def test_debugging_tools_see_the_whole_log_of_any_replica(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.add_follower(topic)
    harness.ask(produce_request(topic, batch(b"not committed")), 9)
    for _ in range(2):
        (found,) = partitions_of(harness.ask(request(topic, LATEST, replica_id=-2), 7))
        assert (found.error_code, found.offset) == (0, 1)
        harness.hand_over(topic)


def test_brokers_are_told_the_end_of_the_log_and_clients_the_high_watermark(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.add_follower(topic)
    harness.ask(produce_request(topic, batch(b"not committed")), 9)
    assert [partitions_of(harness.ask(request(topic, LATEST, replica_id=who), 7))[0].offset for who in (-1, 5)] == [
        0,
        1,
    ]


def old_style(harness: Harness, topic: str, time: int, count: int, **fields: int) -> tuple[str, list[int]]:
    """The answer of version 0: error and offsets."""
    wanted = request(topic, time, **fields)
    wanted.topics[0].partitions[0].max_num_offsets = count
    (found,) = partitions_of(harness.ask(wanted, 0))
    return ErrorCode(found.error_code).name, found.old_style_offsets


def test_version_0_names_segments(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    assert old_style(harness, topic, LATEST, 10) == ("NONE", [0])
    harness.produce(topic, b"a", b"b")
    log = harness.broker.logs.get(topic, 0)
    assert log is not None
    log.roll(harness.broker.now_ms())
    harness.produce(topic, b"c")
    assert old_style(harness, topic, LATEST, 1) == ("NONE", [3])
    assert old_style(harness, topic, LATEST, 10) == ("NONE", [3, 2, 0])
    assert old_style(harness, topic, EARLIEST, 10) == ("NONE", [0])
    assert old_style(harness, topic, 0, 10) == ("NONE", [])
    assert old_style(harness, topic, harness.broker.now_ms() + 60_000, 2) == ("NONE", [3, 2])


def test_version_0_ends_at_the_high_watermark(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a")
    harness.add_follower(topic)
    harness.produce(topic, b"b")
    assert old_style(harness, topic, LATEST, 10) == ("NONE", [1, 0])
    assert old_style(harness, topic, LATEST, 10, replica_id=5) == ("NONE", [2, 0])


def test_errors_of_version_0(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    assert old_style(harness, topic, MAX_TIMESTAMP, 1) == ("UNSUPPORTED_VERSION", [])
    assert old_style(harness, "absent", LATEST, 1) == ("UNKNOWN_TOPIC_OR_PARTITION", [])
    assert old_style(harness, topic, LATEST, 1, partition=7) == ("UNKNOWN_TOPIC_OR_PARTITION", [])
    harness.hand_over(topic)
    assert old_style(harness, topic, LATEST, 1) == ("NOT_LEADER_OR_FOLLOWER", [])
