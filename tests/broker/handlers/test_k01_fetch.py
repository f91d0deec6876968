"""Fetch as clients see it, every version: limits, long polls, errors, sessions. After Apache Kafka's KafkaApis,
ReplicaManager.fetchMessages, DelayedFetch and FetchSession.
"""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.fetch.consumer import FetchRead
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteTopicsRequest, FetchRequest, FetchResponse
from tests.broker.harness import (
    Harness,
    Wire,
    batch,
    bytes_of,
    fetch_request,
    produce_request,
    records_of,
    request_frame,
)
from tests.support.loop_clock import standing_clock

VERSIONS = range(0, 19)
WITH_BATCHES = range(4, 19)  # the others: test_down_converted.py
INVALID = -1


def partitions_of(response: FetchResponse) -> dict[tuple[str | bytes, int], FetchResponse.PartitionData]:
    assert response.error_code == 0
    return {
        (topic.topic or topic.topic_id, data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }


def only(response: FetchResponse) -> FetchResponse.PartitionData:
    (data,) = partitions_of(response).values()
    return data


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_each_version_brings_the_records_and_the_offsets(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    name = topic_id if version >= 13 else topic
    harness.produce(topic, b"a", b"b")
    harness.produce(topic, b"c")
    response = harness.ask(fetch_request([(name, 0, 1)]), version)
    (found,) = response.responses
    assert (found.topic, found.topic_id) == (("", topic_id) if version >= 13 else (topic, bytes(16)))
    data = only(response)
    assert [record.value for record in records_of(data)] == [b"a", b"b", b"c"]  # the batch that holds offset 1 is whole
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
    assert data.log_start_offset == (0 if version >= 5 else -1)
    assert (data.aborted_transactions, data.preferred_read_replica) == (None, -1)
    assert data.diverging_epoch.epoch == data.current_leader.leader_id == -1


@pytest.mark.parametrize("version", VERSIONS)
def test_at_the_end_there_is_nothing_and_the_records_are_not_null(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    harness.produce(topic, b"a")
    data = only(harness.ask(fetch_request([(topic_id if version >= 13 else topic, 0, 1)], max_wait_ms=1), version))
    assert (data.error_code, data.high_watermark, bytes(bytes_of(data))) == (0, 1, b"")


def test_read_committed_gets_a_list_of_aborted_transactions(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a")
    data = only(harness.ask(fetch_request([(topic, 0, 0)], isolation_level=1), 12))
    assert (data.aborted_transactions, data.last_stable_offset) == ([], 1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [-1, 2, 99])
def test_an_offset_outside_of_the_log(harness: Harness, topic: str, version: int, offset: int) -> None:
    topic_id = harness.create_topic(topic)
    harness.produce(topic, b"a")
    request = fetch_request([(topic_id if version >= 13 else topic, 0, offset)], max_wait_ms=10_000)
    data = only(harness.ask(request, version))
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)
    assert bytes(bytes_of(data)) == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_partitions_topics_and_ids(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    name, absent = (topic_id, b"\x05" * 16) if version >= 13 else (topic, "absent")
    found = partitions_of(harness.ask(fetch_request([(name, 8, 0), (absent, 0, 0)]), version))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found[name, 8].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found[absent, 0].error_code == unknown
    assert all(bytes(bytes_of(data)) == b"" for data in found.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_led_elsewhere(harness: Harness, topic: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topic_id = harness.create_topic(topic)
    harness.hand_over(topic)
    nodes = harness.broker.metadata.brokers
    monkeypatch.setattr(harness.broker.metadata, "brokers", {**nodes, 5: nodes[0]._replace(id=5)})
    name = topic_id if version >= 13 else topic
    if version >= 11:  # a consumer that names no leader epoch may read from a follower
        data = only(harness.ask(fetch_request([(name, 0, 0)], max_wait_ms=0), version))
        assert (data.error_code, data.high_watermark) == (ErrorCode.NONE, 0)
    response = harness.ask(fetch_request([(name, 0, 0)], current_leader_epoch=0), version)
    data = only(response)
    assert data.error_code == (ErrorCode.FENCED_LEADER_EPOCH if version >= 9 else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # The replica knows the new leader before the metadata of the cluster do.
    leader = data.current_leader
    assert (leader.leader_id, leader.leader_epoch) == ((5, 1) if version >= 16 else (-1, -1))
    assert [node.node_id for node in response.node_endpoints] == ([5] if version >= 16 else [])


@pytest.mark.parametrize("version", range(9, 19))
def test_the_clients_idea_of_the_leader_epoch(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    harness.add_follower(topic)
    name = topic_id if version >= 13 else topic
    for epoch, error in ((0, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.NONE), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        request = fetch_request([(name, 0, 0)], current_leader_epoch=epoch, max_wait_ms=0)
        assert only(harness.ask(request, version)).error_code == error


def test_a_broker_that_has_no_replica_gets_no_records(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a")
    data = only(harness.ask(fetch_request([(topic, 0, 0)], replica_id=9), 12))
    assert (data.error_code, bytes(bytes_of(data))) == (ErrorCode.UNKNOWN_LEADER_EPOCH, b"")


def test_a_diverging_follower_does_not_move_the_high_watermark(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a", b"b")
    harness.add_follower(topic)
    harness.produce(topic, b"c")
    request = fetch_request([(topic, 0, 3)], replica_id=5, max_wait_ms=0)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    data = only(harness.ask(request, 12))
    assert (data.diverging_epoch.end_offset, data.high_watermark) == (2, 2)
    request.topics[0].partitions[0].last_fetched_epoch = 1
    assert only(harness.ask(request, 12)).high_watermark == 3


@pytest.mark.parametrize("version", range(12, 19))
def test_a_reader_whose_log_went_another_way_is_told_where(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic)
    harness.produce(topic, b"a", b"b")
    harness.add_follower(topic)  # epoch 1 begins at offset 2
    request = fetch_request([(topic_id if version >= 13 else topic, 0, 5)], max_wait_ms=10_000)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    data = only(harness.ask(request, version))
    assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 0, 2)
    assert bytes(bytes_of(data)) == b""


# -- limits -----------------------------------------------------------------------------------------------------------


def test_the_first_batch_comes_whole_however_small_the_limits(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=2)
    for partition in (0, 1):
        harness.produce(topic, bytes(1000), partition=partition)
        harness.produce(topic, bytes(1000), partition=partition)
    wanted = [(topic, 0, 0), (topic, 1, 0)]
    for limits in ({"max_bytes": 1}, {"max_bytes": 0}, {"partition_max_bytes": 1}, {"partition_max_bytes": 0}):
        found = partitions_of(harness.ask(fetch_request(wanted, **limits), 12))  # type: ignore[arg-type]
        assert [len(records_of(found[topic, partition])) for partition in (0, 1)] == [1, 0]


def test_limits_of_a_partition_and_of_the_answer(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=2)
    for partition in (0, 1):
        for _ in range(10):
            harness.produce(topic, bytes(1000), partition=partition)
    wanted = [(topic, 0, 0), (topic, 1, 0)]
    size = len(batch(bytes(1000)))

    def sizes(**limits: int) -> list[int]:
        found = partitions_of(harness.ask(fetch_request(wanted, **limits), 12))  # type: ignore[arg-type]
        return [len(bytes_of(found[topic, partition])) for partition in (0, 1)]

    assert sizes() == [10 * size, 10 * size]
    assert sizes(partition_max_bytes=3 * size) == [3 * size, 3 * size]
    assert sizes(max_bytes=12 * size) == [10 * size, 2 * size]
    assert sizes(max_bytes=10 * size) == [10 * size, 0]
    # A last batch may be cut off, as in Apache Kafka: clients ignore it.
    assert sizes(partition_max_bytes=2 * size + 7) == [2 * size + 7, 2 * size + 7]


def test_the_broker_has_the_last_word_on_the_size(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    for _ in range(4):
        harness.produce(topic, bytes(900_000))
    asked = fetch_request([(topic, 0, 0)], max_bytes=2**31 - 1, partition_max_bytes=2**31 - 1)
    assert len(bytes_of(only(harness.ask(asked, 12)))) == 4 * len(batch(bytes(900_000)))
    with harness.settings(fetch_max_bytes="2000000"):
        assert len(bytes_of(only(harness.ask(asked, 12)))) == 2_000_000


# -- long polls -------------------------------------------------------------------------------------------------------


def test_a_long_poll_is_answered_by_a_later_produce(harness: Harness, topic: str) -> None:
    topic_id = harness.create_topic(topic)
    for version in WITH_BATCHES:
        end = harness.fetch(topic, 0).high_watermark
        name = topic_id if version >= 13 else topic
        poll = harness.begin(fetch_request([(name, 0, end)], max_wait_ms=10_000), version)
        assert not poll.done()
        harness.produce(topic, b"news %d" % version)
        (record,) = records_of(only(harness.run(poll)))
        assert (record.offset, record.value) == (end, b"news %d" % version)


def test_a_long_poll_waits_for_enough_bytes_over_all_partitions(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=2)
    size = len(batch(bytes(100)))
    request = fetch_request([(topic, 0, 0), (topic, 1, 0)], max_wait_ms=10_000, min_bytes=3 * size)
    poll = harness.begin(request, 12)
    for partition in (0, 1):
        harness.produce(topic, bytes(100), partition=partition)
        harness.turn()
        assert not poll.done()
    harness.produce(topic, bytes(100))
    found = partitions_of(harness.run(poll))
    assert [len(bytes_of(found[topic, partition])) for partition in (0, 1)] == [2 * size, size]


def test_a_long_poll_counts_once_however_often_it_reads(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    partition = harness.broker.replicas.get(topic, 0)
    assert partition is not None
    before = partition.traffic.fetch_requests
    poll = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000, min_bytes=1000), 12)
    while not poll.done():
        harness.produce(topic, bytes(100))
        harness.turn()
    assert partition.traffic.fetch_requests == before + 1


def test_a_long_poll_waits_beside_partitions_that_are_unknown(harness: Harness, topic: str) -> None:
    """As in Apache Kafka: a consumer would fetch without a pause until it learns that a topic was deleted."""
    topic_id = harness.create_topic(topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for version in (12, 13):
        name = topic_id if version >= 13 else topic
        absent = (b"\x07" * 16, 0) if version >= 13 else (topic, 9)
        end = harness.fetch(topic, 0).high_watermark
        poll = harness.begin(fetch_request([(*absent, 0), (name, 0, end)], max_wait_ms=10_000), version)
        assert not poll.done()
        harness.produce(topic, b"news")
        found = partitions_of(harness.run(poll))
        assert found[absent].error_code == (ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else unknown)
        assert len(records_of(found[name, 0])) == 1
    # Without any other it does not wait, nor beside an error of the read.
    beside: list[tuple[str | bytes, int, int]] = [(topic, 0, 50)]
    for others in ([], beside):
        poll = harness.begin(fetch_request([(topic, 9, 0), *others], max_wait_ms=10_000), 12)
        assert poll.done() and partitions_of(poll.result())[topic, 9].error_code == unknown


def test_a_long_poll_ends_when_another_of_its_topics_is_deleted(harness: Harness, topic: str) -> None:
    names = [topic + suffix for suffix in ("-kept", "-deleted")]
    for name in names:
        harness.create_topic(name)
    wanted = [(name, 0, 0) for name in (*names, topic)]
    poll = harness.begin(fetch_request([*wanted], max_wait_ms=10_000), 12)
    assert not poll.done()
    begin = harness.loop.time()
    harness.ask(DeleteTopicsRequest(topic_names=[names[1]], timeout_ms=30_000), 5)
    assert partitions_of(harness.run(poll))[names[1], 0].error_code
    assert harness.loop.time() - begin < 9


def test_a_long_poll_ends_with_what_there_is(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"little")
    begin = harness.loop.time()
    with standing_clock(harness.loop):
        poll = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=20, min_bytes=100_000), 12)
        assert not poll.done()
    assert len(records_of(only(harness.run(poll)))) == 1
    assert harness.loop.time() - begin < 30


def test_more_bytes_than_an_answer_may_have_are_not_waited_for(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    for _ in range(5):
        harness.produce(topic, bytes(1000))
    poll = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000, min_bytes=100_000, max_bytes=3000), 12)
    assert poll.done()


def test_the_rest_of_an_old_segment_is_not_waited_for(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, internal_segment_bytes="2048")
    for _ in range(4):
        harness.produce(topic, bytes(900))
    log = harness.broker.logs.get(topic, 0)
    assert log is not None and log.segments_count == 2
    request = fetch_request([(topic, 0, 1)], max_wait_ms=10_000, min_bytes=1500)
    poll = harness.begin(request, 12)
    assert poll.done()
    assert [record.offset for record in records_of(only(harness.run(poll)))] == [1]


def test_a_long_poll_wakes_when_its_topic_is_deleted(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    poll = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000), 12)
    harness.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5)
    error = ErrorCode(only(harness.run(poll)).error_code)
    assert error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_long_poll_wakes_when_the_leader_changes(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    old = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000), 10)
    new = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000, current_leader_epoch=0), 12)
    harness.hand_over(topic)
    assert only(harness.run(old)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(harness.run(new)).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_follower_shows_consumers_what_it_knows_to_be_committed(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a")
    harness.produce(topic, b"b")
    harness.hand_over(topic)
    partition = harness.broker.replicas.get(topic, 0)
    assert partition is not None and partition.log is not None
    partition.log.offsets.restore_high_watermark(1)
    assert [record.value for record in records_of(harness.fetch(topic, 0))] == [b"a"]
    poll = harness.begin(fetch_request([(topic, 0, 1)], max_wait_ms=10_000), 12)
    assert not poll.done()
    partition.append_as_follower(b"", 2, 0, harness.broker.now_ms())
    assert [record.value for record in records_of(only(harness.run(poll)))] == [b"b"]
    assert harness.fetch(topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_is_sent_to_the_follower_in_its_rack(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a")
    harness.add_follower(topic)
    broker = harness.broker
    broker.sends_to_racks = True
    here = broker.metadata.brokers[0]
    racks = {0: here._replace(rack="east"), 5: here._replace(id=5, rack="west")}
    monkeypatch.setattr(broker.metadata, "brokers", racks)
    follower = fetch_request([(topic, 0, 1)], replica_id=5, max_wait_ms=0)
    assert only(harness.ask(follower, 12)).high_watermark == 1
    for rack, preferred in (("west", 5), ("east", -1), ("north", -1), ("", -1)):
        request = fetch_request([(topic, 0, 0)], rack_id=rack, max_wait_ms=10_000)
        data = only(harness.ask(request, 12))
        assert (data.preferred_read_replica, len(bytes_of(data)) > 0) == (preferred, preferred < 0)
        assert data.high_watermark == 1
    assert only(harness.ask(fetch_request([(topic, 0, 2)], rack_id="west"), 12)).preferred_read_replica == -1
    broker.sends_to_racks = False
    assert only(harness.ask(fetch_request([(topic, 0, 0)], rack_id="west"), 12)).preferred_read_replica == -1


def test_a_consumer_waits_for_the_high_watermark_and_a_follower_moves_it(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.add_follower(topic)
    harness.produce(topic, b"a")
    poll = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000), 12)
    assert not poll.done()
    follower = only(harness.ask(fetch_request([(topic, 0, 0)], replica_id=5), 12))
    assert len(records_of(follower)) == 1
    assert not poll.done()
    harness.ask(fetch_request([(topic, 0, 1)], replica_id=5, max_wait_ms=0), 12)
    assert [record.value for record in records_of(only(harness.run(poll)))] == [b"a"]


def test_an_append_that_is_not_committed_causes_no_read(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    harness.add_follower(topic)
    poll = harness.begin(fetch_request([(topic, 0, 0)], max_wait_ms=10_000), 12)
    with monkeypatch.context() as patched:
        patched.setattr(FetchRead, "collect", None)
        harness.produce(topic, b"a")
        harness.turn()
    assert not poll.done()
    poll.cancel()
    harness.turn()


def test_a_client_that_leaves_takes_its_long_poll_along(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    partition = harness.broker.replicas.get(topic, 0)
    assert partition is not None
    wire = Wire(harness)
    wire.send(request_frame(fetch_request([(topic, 0, 0)], max_wait_ms=10_000), 12))
    assert partition.delayed.active
    wire.close()
    assert not partition.delayed.active
    harness.produce(topic, b"a")
    harness.turn()
    assert not wire.transport.written


def test_requests_behind_a_long_poll_on_the_same_connection_wait_for_it(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    wire = Wire(harness)
    wire.send(request_frame(fetch_request([(topic, 0, 0)], max_wait_ms=10_000), 12))
    wire.send(request_frame(produce_request(topic, batch(b"late")), 12))
    harness.turn()
    assert not wire.transport.written
    harness.produce(topic, b"first")
    harness.turn()
    assert [record.value for record in harness.records(topic)] == [b"first", b"late"]
    wire.close()


# -- sessions (KIP-227) -----------------------------------------------------------------------------------------------


class Consumer:
    """Keeps count of a session as a client does."""

    def __init__(self, harness: Harness, version: int) -> None:
        self.harness = harness
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def fetch(self, *wanted: tuple[str | bytes, int, int], forget: Any = (), **fields: Any) -> FetchResponse:
        request = fetch_request(list(wanted), max_wait_ms=fields.pop("max_wait_ms", 0), **fields)
        request.session_id, request.session_epoch = self.session_id, self.epoch
        request.forgotten_topics_data = [
            FetchRequest.ForgottenTopic(topic_id=name, partitions=[index])
            if isinstance(name, bytes)
            else FetchRequest.ForgottenTopic(topic=name, partitions=[index])
            for name, index in forget
        ]
        response: FetchResponse = self.harness.ask(request, self.version)
        if response.error_code == 0:
            self.session_id = response.session_id
            self.epoch += 1
        return response


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_incremental_answers_leave_unchanged_partitions_out(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic, partitions=3)
    name: str | bytes = topic_id if version >= 13 else topic
    harness.produce(topic, b"a")
    consumer = Consumer(harness, version)
    found = partitions_of(consumer.fetch(*[(name, index, 0) for index in range(3)]))
    assert sorted(found) == [(name, 0), (name, 1), (name, 2)]
    assert consumer.session_id > 0

    assert partitions_of(consumer.fetch((name, 0, 1))) == {}
    harness.produce(topic, b"b", partition=2)
    found = partitions_of(consumer.fetch())
    assert [record.value for record in records_of(found.pop((name, 2)))] == [b"b"]
    assert found == {}
    assert partitions_of(consumer.fetch((name, 2, 1))) == {}

    harness.produce(topic, b"c", partition=2)
    harness.produce(topic, b"d", partition=1)
    assert partitions_of(consumer.fetch(forget=[(name, 2)])).keys() == {(name, 1)}
    assert partitions_of(consumer.fetch((name, 1, 1), (name, 2, 1))).keys() == {(name, 2)}


def test_a_long_poll_in_a_session_is_answered_by_the_partition_that_moved(harness: Harness, topic: str) -> None:
    topic_id = harness.create_topic(topic, partitions=3)
    consumer = Consumer(harness, 15)
    consumer.fetch(*[(topic_id, index, 0) for index in range(3)])
    request = fetch_request([], max_wait_ms=10_000)
    request.session_id, request.session_epoch = consumer.session_id, 1
    poll = harness.begin(request, 15)
    assert not poll.done()
    harness.produce(topic, b"x", partition=1)
    response = harness.run(poll)
    assert partitions_of(response).keys() == {(topic_id, 1)}
    assert response.session_id == consumer.session_id


def test_errors_of_sessions(harness: Harness, topic: str) -> None:
    topic_id = harness.create_topic(topic)
    consumer = Consumer(harness, 12)
    consumer.fetch((topic, 0, 0))
    consumer.fetch()

    def error(session_id: int, epoch: int, version: int = 12) -> tuple[ErrorCode, int]:
        request = fetch_request([], max_wait_ms=0)
        request.session_id, request.session_epoch = session_id, epoch
        response = harness.ask(request, version)
        assert response.responses == []
        return ErrorCode(response.error_code), response.session_id

    assert error(consumer.session_id + 1, 2) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert error(consumer.session_id, 7) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert error(consumer.session_id, 2, version=13) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    assert partitions_of(consumer.fetch()) == {}  # it lives on
    # Epoch -1 ends it; its partitions are answered as if there had never been one.
    request = fetch_request([(topic, 0, 0)], max_wait_ms=0)
    request.session_id, request.session_epoch = consumer.session_id, -1
    assert partitions_of(harness.ask(request, 12)).keys() == {(topic, 0)}
    assert error(consumer.session_id, 3)[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert topic_id


def test_without_a_session_nothing_is_left_out(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    for version in (4, 6, 7, 12):
        for _ in range(2):
            response = harness.ask(fetch_request([(topic, 0, 0)], max_wait_ms=0), version)
            assert partitions_of(response).keys() == {(topic, 0)}
            assert response.session_id == 0


def test_errors_come_in_each_answer_of_a_session(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    consumer = Consumer(harness, 12)
    for wanted in ([(topic, 0, 50)], [], []):
        found = partitions_of(consumer.fetch(*wanted))
        assert found[topic, 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partitions_of(consumer.fetch((topic, 0, 0)))[topic, 0].error_code == 0


def test_partitions_take_turns_when_not_all_fit(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=3)
    for index in range(3):
        harness.produce(topic, bytes(1000), partition=index)
    consumer = Consumer(harness, 12)
    served = []
    wanted: list[tuple[str | bytes, int, int]] = [(topic, index, 0) for index in range(3)]
    for _ in range(3):
        found = partitions_of(consumer.fetch(*wanted, max_bytes=1000))
        served += [index for (_, index), data in found.items() if bytes(bytes_of(data))]
        wanted = []
    assert sorted(served) == [0, 1, 2]


# -- what clients must not be sent ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 9, 10, 12])
def test_zstd_topics_need_version_10(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, compression_type="zstd")
    harness.produce(topic, b"a" * 100, compression=4)
    data = only(harness.ask(fetch_request([(topic, 0, 0)], max_wait_ms=0), version))
    assert data.error_code == (0 if version >= 10 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def test_pieces_of_files_are_given_back(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"a")
    log = harness.broker.logs.get(topic, 0)
    assert log is not None
    file: Any = log.segments[0].log
    wire = Wire(harness)
    for _ in range(2):
        assert len(records_of(only(wire.ask(fetch_request([(topic, 0, 0)]), 12)))) == 1
    # A poll that finds too little again and again, and one that is cancelled.
    poll = fetch_request([(topic, 0, 0)], min_bytes=10_000, max_wait_ms=10_000)
    wire.send(request_frame(poll, 12))
    for _ in range(3):
        harness.produce(topic, b"b")
        harness.turn()
    wire.close()
    assert not file.held
