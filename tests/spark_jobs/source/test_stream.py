"""gregor.spark_jobs.source: positions, batches and commits of a stream, and the ranges of a batch, on brokers in
memory."""

from __future__ import annotations

import json

import pytest

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.plan import Filters, ReadPlan
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.batch import plan_batch
from gregor.spark_jobs.source.filters import Pushed
from gregor.spark_jobs.source.offsets import StreamOffset
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.stream import Stream, group_of
from tests.spark_jobs.client.brokers import BOOTSTRAP, Brokers, Partition, Topic

ONE, OTHER = bytes(range(16)), bytes(range(1, 17))
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def brokers_with(*latest: int, topic_id: bytes = ONE) -> Brokers:
    brokers = Brokers()
    brokers.add("t", *(Partition(0, end) for end in latest), topic_id=topic_id)
    return brokers


def options(streaming: bool = True, **given: str) -> SourceOptions:
    subscribed = given if {"subscribePattern", "assign"} & given.keys() else {"subscribe": "t", **given}
    return SourceOptions.from_options({**BOOTSTRAP, **subscribed}, streaming)


def stream_on(brokers: Brokers, **given: str) -> Stream:
    return Stream(brokers.cluster(), options(**given), brokers.clock.now_ms)


def pieces(plans: list[ReadPlan]) -> list[tuple[str, int, int, int]]:
    ranges = [plan.range for plan in plans]
    return [(part.topic, part.partition, part.start_offset, part.end_offset) for part in ranges]


def batch(brokers: Brokers, pushed: Pushed | None = None, **given: str) -> list[tuple[str, int, int, int]]:
    return pieces(plan_batch(brokers.cluster(), options(streaming=False, **given), pushed or Pushed()))


# Where queries start and end


def test_a_batch_reads_all_that_is_there() -> None:
    assert batch(brokers_with(5, 0, 7)) == [("t", 0, 0, 5), ("t", 2, 0, 7)]


def test_a_batch_between_offsets() -> None:
    brokers = brokers_with(5, 9)
    given = {"startingOffsets": '{"t":{"0":-2,"1":3}}', "endingOffsets": '{"t":{"0":4,"1":-1}}'}
    assert batch(brokers, **given) == [("t", 0, 0, 4), ("t", 1, 3, 9)]


def test_offsets_name_all_partitions_and_no_others() -> None:
    for given in ('{"t":{"0":1}}', '{"t":{"0":1,"1":1,"2":1}}', '{"u":{"0":1,"1":1}}'):
        with pytest.raises(JobError, match="startingOffsets must name all partitions .* read are t-0, t-1"):
            batch(brokers_with(5, 9), startingOffsets=given)
    with pytest.raises(JobError, match="-3 is no offset of t-0"):
        batch(brokers_with(5), startingOffsets='{"t":{"0":-3}}')


def with_times() -> Brokers:
    brokers = brokers_with(5, 5)
    brokers.topics["t"].partitions[0].records = {0: 100, 3: 200}
    brokers.topics["t"].partitions[1].records = {1: 250}
    return brokers


def test_a_batch_between_times() -> None:
    assert batch(with_times(), startingTimestamp="150") == [("t", 0, 3, 5), ("t", 1, 1, 5)]
    assert batch(with_times(), endingTimestamp="200") == [("t", 0, 0, 3), ("t", 1, 0, 1)]
    given = {"startingOffsetsByTimestamp": '{"t":{"0":1,"1":250}}'}
    assert batch(with_times(), **given) == [("t", 0, 0, 5), ("t", 1, 1, 5)]
    assert batch(with_times(), endingTimestamp="220") == [("t", 0, 0, 5), ("t", 1, 0, 1)]  # none is as late: latest


def test_a_starting_time_without_records_is_an_error_unless_the_strategy_is_latest() -> None:
    with pytest.raises(JobError, match="t-0 has no record with the timestamp 220"):
        batch(with_times(), startingTimestamp="220")
    given = {"startingTimestamp": "220", "startingOffsetsByTimestampStrategy": "latest"}
    assert batch(with_times(), **given) == [("t", 1, 1, 5)]


def test_a_pattern_matches_whole_names_of_topics_that_are_not_internal() -> None:
    brokers = brokers_with(5)
    brokers.add("tt", Partition(0, 3))
    brokers.add("xt", Partition(0, 3))
    brokers.add("t__internal", Partition(0, 3), is_internal=True)
    assert batch(brokers, subscribePattern="t.*") == [("t", 0, 0, 5), ("tt", 0, 0, 3)]
    assert batch(brokers, subscribePattern="none") == []


def test_assigned_partitions_are_read_alone() -> None:
    assert batch(brokers_with(5, 6, 7), assign='{"t":[2,0]}') == [("t", 0, 0, 5), ("t", 2, 0, 7)]
    with pytest.raises(KafkaFailure, match="assign names t-3, which do not exist"):
        batch(brokers_with(5), assign='{"t":[3]}')


def test_a_missing_topic_is_an_error_after_some_attempts() -> None:
    brokers = brokers_with(5)
    with pytest.raises(KafkaFailure, match="the topic 'u' does not exist; `gregor topics --list`"):
        batch(brokers, subscribe="t,u")
    assert sum(brokers.clock.waits) >= 1600


def test_brokers_that_do_not_respond_are_waited_for_until_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = brokers_with(5)
    stream = stream_on(brokers)
    start = stream.initial()
    brokers.topics["t"].partitions[0].latest = 9
    brokers.down = {0, 1}
    wait = brokers.clock.wait_ms

    def wait_and_start(duration_ms: float) -> None:
        wait(duration_ms)
        if brokers.clock.time_ms > 50_000:
            brokers.down = set()

    monkeypatch.setattr(brokers.clock, "wait_ms", wait_and_start)
    assert stream.latest(start).offsets == {T0: 9}
    brokers.down = {0, 1}
    monkeypatch.setattr(brokers.clock, "wait_ms", wait)
    with pytest.raises(KafkaFailure, match=r"no broker accepts connections .* attempts in 60 s"):
        stream.latest(start)


def test_topic_that_is_missing_after_an_outage_has_all_its_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = brokers_with(5)
    brokers.down = {0, 1}
    wait, missing = brokers.clock.wait_ms, brokers.topics.pop("t")

    def wait_and_start(duration_ms: float) -> None:
        wait(duration_ms)
        if brokers.clock.time_ms > 30_000:
            brokers.down = set()
        if brokers.clock.time_ms > 31_800:
            brokers.topics["t"] = missing

    monkeypatch.setattr(brokers.clock, "wait_ms", wait_and_start)
    assert batch(brokers) == [("t", 0, 0, 5)]


def test_filters_and_limits_of_tasks_divide_a_batch() -> None:
    assert len(batch(brokers_with(100), minPartitions="3")) == 3
    assert len(batch(brokers_with(100), maxRecordsPerPartition="10")) == 10
    pushed = Pushed(partitions=frozenset({0}), bounds=Filters(min_offset=3, min_timestamp_ms=150))
    assert batch(with_times(), pushed) == [("t", 0, 3, 5)]
    assert batch(with_times(), Pushed(bounds=Filters(min_timestamp_ms=220))) == [("t", 1, 1, 5)]


def test_a_plan_has_what_the_task_needs() -> None:
    brokers = brokers_with(5)
    given = options(
        streaming=False, includeHeaders="true", mode="wire", failOnDataLoss="false",
        **{"kafka.isolation.level": "read_committed"},
    )  # fmt: skip
    [plan] = plan_batch(brokers.cluster(), given, Pushed())
    assert (plan.range.topic_id, plan.range.leader_hint) == (ONE, 0)
    assert (plan.include_headers, plan.mode, plan.read_committed, plan.fail_on_data_loss) == (True, "wire", True, False)


# Streams


def test_a_stream_starts_at_the_end_and_reads_what_comes() -> None:
    brokers = brokers_with(5, 6)
    stream = stream_on(brokers)
    start = stream.initial()
    assert start == StreamOffset({T0: 5, T1: 6}, {"t": ONE})
    assert stream.latest(start) == start
    assert stream.plan(start, start) == []
    brokers.topics["t"].partitions[1].latest = 9
    end = stream.latest(start)
    assert pieces(stream.plan(start, end)) == [("t", 1, 6, 9)]


def test_a_first_batch_that_is_repeated_begins_where_it_began() -> None:
    """Spark stores the end alone, and a restarted query calls initialOffset again."""
    brokers = brokers_with(5)
    stream = stream_on(brokers)
    start = stream.initial()
    brokers.topics["t"].partitions[0].latest = 8
    text = json.dumps(stream.latest(start).to_json())
    brokers.topics["t"].partitions[0].latest = 20
    brokers.topics["t"].partitions[1] = Partition(0, 4)
    again = stream_on(brokers)
    anew = again.initial()
    assert anew.offsets == {T0: 20, T1: 4}
    end = StreamOffset.from_json(json.loads(text))
    assert pieces(again.plan(anew, end)) == [("t", 0, 5, 8)]
    following = again.latest(end)
    assert following.begin is None
    assert pieces(again.plan(end, following)) == [("t", 0, 8, 20), ("t", 1, 0, 4)]


def test_a_later_batch_whose_end_was_requested_first_begins_where_the_one_before_ended() -> None:
    """Before Spark 4.2 the trigger available-now requests the end before it names the position of the query."""
    brokers = brokers_with(5)
    stream = stream_on(brokers, startingOffsets="earliest")
    committed = StreamOffset.from_json(stream.latest(stream.initial()).to_json())
    brokers.topics["t"].partitions[0].latest = 8
    again = stream_on(brokers, startingOffsets="earliest")
    end = StreamOffset.from_json(again.latest(again.initial()).to_json())
    assert again.plan(committed, committed) == []
    assert pieces(again.plan(committed, end)) == [("t", 0, 5, 8)]
    restarted = stream_on(brokers, startingOffsets="earliest")
    assert pieces(restarted.plan(committed, end)) == [("t", 0, 5, 8)]


def test_an_end_without_new_records_is_the_text_of_the_start() -> None:
    """Spark begins a batch for each other text."""
    brokers = brokers_with(5)
    stream = stream_on(brokers, startingOffsets="earliest")
    first = stream.latest(stream.initial())
    assert first.begin == StreamOffset({T0: 0}, {"t": ONE})
    assert json.dumps(stream.latest(first).to_json()) == json.dumps(first.to_json())


def test_a_batch_is_capped_with_new_partitions_from_their_first_offset() -> None:
    brokers = brokers_with(100)
    stream = stream_on(brokers, maxOffsetsPerTrigger="10")
    start = StreamOffset({T0: 0}, {"t": ONE})
    brokers.topics["t"].partitions[1] = Partition(0, 100)
    end = stream.latest(start)
    assert end.offsets == {T0: 5, T1: 5}
    assert stream.newest is not None
    assert stream.newest.offsets == {T0: 100, T1: 100}
    assert pieces(stream.plan(start, end)) == [("t", 0, 0, 5), ("t", 1, 0, 5)]
    assert stream.latest(start, limited=False).offsets == {T0: 100, T1: 100}


def test_a_batch_waits_for_its_least_size() -> None:
    brokers = brokers_with(1)
    stream = stream_on(brokers, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    start = stream.latest(StreamOffset({T0: 0}, {"t": ONE}))
    assert start.offsets == {T0: 1}
    brokers.topics["t"].partitions[0].latest = 5
    assert stream.latest(start) == start
    brokers.clock.wait_ms(60_000)
    assert stream.latest(start).offsets == {T0: 5}


def test_available_now_ends_at_the_records_that_were_there() -> None:
    brokers = brokers_with(10)
    stream = stream_on(brokers, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="6")
    start = StreamOffset({T0: 0}, {"t": ONE})
    stream.stop_at_present_end()
    first = stream.latest(start)
    brokers.topics["t"].partitions[0].latest = 100
    brokers.topics["t"].partitions[1] = Partition(0, 5)
    second = stream.latest(first)
    assert (first.offsets, second.offsets) == ({T0: 6}, {T0: 10})
    assert stream.latest(second) == second


def test_a_stream_with_a_fixed_end_reads_nothing_behind_it() -> None:
    brokers = brokers_with(10, 3)
    end = stream_on(brokers).latest(StreamOffset({}), limited=False)
    assert end == StreamOffset({T0: 10, T1: 3}, {"t": ONE})
    for partition in (0, 1):
        brokers.topics["t"].partitions[partition].latest = 100
    brokers.topics["t"].partitions[2] = Partition(0, 5)
    given = {"streamEndingOffsets": json.dumps(end.to_json()), "maxOffsetsPerTrigger": "6", "minOffsetsPerTrigger": "5"}
    stream = stream_on(brokers, **given, startingOffsets="earliest")
    position, read = stream.initial(), []
    while (batch_end := stream.latest(position)).offsets != position.offsets:
        read.append(pieces(stream.plan(position, batch_end)))
        position = batch_end
    assert [sum(piece[3] - piece[2] for piece in batch_read) for batch_read in read] == [5, 5, 3]
    assert {partition: position.offsets[partition] for partition in (T0, T1)} == end.offsets


def test_a_stream_that_is_behind_its_fixed_end_stays_where_it_is() -> None:
    brokers = brokers_with(100, 100)
    stream = stream_on(brokers, streamEndingOffsets='{"t":{"0":10}}')
    start = StreamOffset({T0: 20, T1: 7}, {"t": ONE})
    assert stream.latest(start) == start


def test_an_end_of_a_leader_that_lags_is_fetched_again() -> None:
    brokers = brokers_with(10)
    stream = stream_on(brokers)
    brokers.topics["t"].partitions[0].latest = 7
    end = stream.latest(StreamOffset({T0: 10}, {"t": ONE}))
    assert [name for _, name, _ in brokers.requests].count("LIST_OFFSETS") >= 3
    with pytest.raises(JobError, match="the end of t-0 has changed from 10 to 7"):
        stream.plan(StreamOffset({T0: 10}, {"t": ONE}), end)
    assert stream_on(brokers, failOnDataLoss="false").plan(StreamOffset({T0: 10}, {"t": ONE}), end) == []


def test_a_new_partition_that_lost_records_is_reported() -> None:
    brokers = brokers_with(10)
    brokers.topics["t"].partitions[1] = Partition(3, 8)
    start, end = StreamOffset({T0: 10}, {"t": ONE}), StreamOffset({T0: 10, T1: 8}, {"t": ONE})
    with pytest.raises(JobError, match="new partition t-1 starts at the offset 3 instead of 0"):
        stream_on(brokers).plan(start, end)
    assert pieces(stream_on(brokers, failOnDataLoss="false").plan(start, end)) == [("t", 1, 3, 8)]


def recreated(latest: int) -> Brokers:
    """The topic t with another id, and less records than were read of the first one."""
    return brokers_with(latest, topic_id=OTHER)


def test_a_topic_that_was_made_again_is_an_error_also_if_it_has_more_records() -> None:
    start = StreamOffset({T0: 3, T1: 4}, {"t": ONE})
    stream = stream_on(recreated(7))
    with pytest.raises(JobError, match="'t' was deleted and created again"):
        stream.plan(start, stream.latest(start))


def test_a_topic_that_was_made_again_is_read_from_its_first_offset() -> None:
    start = StreamOffset({T0: 30, T1: 4}, {"t": ONE})
    brokers = recreated(7)
    stream = stream_on(brokers, failOnDataLoss="false", maxOffsetsPerTrigger="5")
    end = stream.latest(start)
    assert end == StreamOffset({T0: 5}, {"t": OTHER})
    [plan] = stream.plan(start, end)
    assert (plan.range.start_offset, plan.range.end_offset, plan.range.topic_id) == (0, 5, OTHER)
    assert pieces(stream.plan(end, stream.latest(end))) == [("t", 0, 5, 7)]
    assert brokers.clock.waits == []


def test_a_checkpoint_without_ids_continues() -> None:
    brokers = brokers_with(7)
    stream = stream_on(brokers)
    start = StreamOffset({T0: 3})
    end = stream.latest(start)
    assert pieces(stream.plan(start, end)) == [("t", 0, 3, 7)]
    assert end.id_of("t") == ONE


def test_a_deleted_topic_is_an_error_or_its_partitions_end() -> None:
    start = StreamOffset({T0: 3}, {"t": ONE})
    brokers = brokers_with(3)
    del brokers.topics["t"]
    with pytest.raises(KafkaFailure, match="the topic 't' does not exist"):
        stream_on(brokers).latest(start)
    lenient = stream_on(brokers, failOnDataLoss="false")
    gone = lenient.latest(start)
    assert gone == StreamOffset({})
    assert lenient.plan(start, gone) == []
    brokers.topics["t"] = Topic({0: Partition(0, 2)}, OTHER)
    assert pieces(lenient.plan(gone, lenient.latest(gone))) == [("t", 0, 0, 2)]


def test_a_topic_that_is_deleted_while_its_ends_are_requested_is_described_again() -> None:
    brokers = brokers_with(3, 3, 3)
    brokers.changes[ApiKey.LIST_OFFSETS] = lambda: brokers.add("t", Partition(0, 2), Partition(0, 7), topic_id=OTHER)
    stream = stream_on(brokers, failOnDataLoss="false")
    start = StreamOffset({T0: 3, T1: 3, T2: 3}, {"t": ONE})
    end = stream.latest(start)
    assert end == StreamOffset({T0: 2, T1: 7}, {"t": OTHER})
    assert pieces(stream.plan(start, end)) == [("t", 0, 0, 2), ("t", 1, 0, 7)]
    brokers.changes[ApiKey.LIST_OFFSETS] = brokers.topics.clear
    gone = stream.latest(end)
    assert gone == StreamOffset({})
    assert stream.plan(end, gone) == []
    assert sum(brokers.clock.waits) < 5000


def test_a_topic_that_is_deleted_while_its_ends_are_requested_is_lost_data() -> None:
    brokers = brokers_with(3)
    brokers.changes[ApiKey.LIST_OFFSETS] = brokers.topics.clear
    with pytest.raises(KafkaFailure, match="the topic 't' does not exist"):
        stream_on(brokers).latest(StreamOffset({T0: 3}, {"t": ONE}))
    assert sum(brokers.clock.waits) < 5000


def test_partitions_of_a_pattern_that_are_gone_are_reported() -> None:
    brokers = brokers_with(3)
    start = StreamOffset({T0: 3, TopicPartition("u", 0): 5}, {"t": ONE})
    stream = stream_on(brokers, subscribePattern=".*")
    with pytest.raises(JobError, match="u-0 are gone: their topic was deleted"):
        stream.plan(start, stream.latest(start))


def test_a_new_partition_that_is_gone_before_it_is_read() -> None:
    start, end = StreamOffset({T0: 3}), StreamOffset({T0: 3, T2: 5})
    with pytest.raises(JobError, match="t-2 are gone before they were read"):
        stream_on(brokers_with(3)).plan(start, end)
    assert stream_on(brokers_with(3), failOnDataLoss="false").plan(start, end) == []
    brokers = brokers_with(3, 0, 5)
    brokers.changes[ApiKey.LIST_OFFSETS] = brokers.topics.clear
    assert stream_on(brokers, failOnDataLoss="false").plan(start, end) == []


def test_leaders_that_move_are_found_again() -> None:
    brokers = brokers_with(5, 5)
    stream = stream_on(brokers)
    start = stream.initial()
    brokers.topics["t"].partitions[0] = Partition(0, 8, leader=1)
    end = stream.latest(start)
    [plan] = stream.plan(start, end)
    assert plan.range.leader_hint == 1


def test_positions_are_committed_to_the_group_of_the_query() -> None:
    brokers = brokers_with(5)
    stream_on(brokers).commit(StreamOffset({T0: 4}))
    assert brokers.committed == {}
    stream_on(brokers, **{"kafka.group.id": "g", "groupIdPrefix": "p"}).commit(StreamOffset({T0: 4}))
    assert brokers.committed == {"g": {("t", 0): 4}}
    prefixed = [group_of(options(groupIdPrefix="p", subscribe=topics)) for topics in ("t,u", "u,t", "t")]
    assert prefixed[0] == prefixed[1] != prefixed[2]
    assert all(name is not None and name.startswith("p-") for name in prefixed)


def test_a_topic_without_an_id_is_never_recreated() -> None:
    brokers = brokers_with(5, topic_id=ZERO_UUID)
    stream = stream_on(brokers, startingOffsets="earliest")
    assert stream.initial().to_json() == {"t": {"0": 0}}
    assert stream.latest(StreamOffset({T0: 3}, {"t": ONE})).offsets == {T0: 5}


def test_an_error_of_the_cluster_is_named() -> None:
    brokers = brokers_with(5)
    brokers.errors[3] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaFailure, match="does not describe the topic 't' .TOPIC_AUTHORIZATION_FAILED"):
        stream_on(brokers).initial()
