"""Followers' fetches in sessions of their leader: contents of requests, the session's memory, checks of replicas."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.fetch.follower_session import FollowerSession
from gregor.broker.fetch.session_cache import EVICT_AFTER_MS
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteTopicsRequest, FetchRequest, FetchResponse
from gregor.replication.partition.partition import Partition
from gregor.replication.partition.throttle import ReplicaThrottle
from tests.broker.harness import Harness, bytes_of, fetch_request, records_of
from tests.replication.replicas import state
from tests.support.loop_clock import standing_clock

FOLLOWER = 5


@pytest.fixture
def topic(harness: Harness, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions, which broker 5 follows."""
    name: str = request.node.name.translate(str.maketrans("[]", "--"))
    harness.create_topic(name, 3)
    for index in range(3):
        harness.add_follower(name, index)
    return name


class Fetches:
    """The fetch requests of a follower in one session."""

    def __init__(
        self,
        harness: Harness,
        topic: str,
        version: int = 17,
        client_id: str = "broker-5-fetcher-0",
        replica_id: int = FOLLOWER,
    ) -> None:
        self.harness = harness
        self.client_id = client_id
        self.replica_id = replica_id
        self.version = version
        partition = harness.broker.replicas.get(topic, 0)
        assert partition is not None
        self.name: Any = partition.topic_id if version >= 13 else topic
        self.begin_anew()

    def begin_anew(self) -> None:
        self.session_id = self.epoch = 0

    def request(self, offsets: dict[int, int], max_wait_ms: int = 0, **fields: Any) -> FetchRequest:
        wanted = [(self.name, index, offset) for index, offset in offsets.items()]
        request = fetch_request(wanted, max_wait_ms=max_wait_ms, current_leader_epoch=1, **fields)
        for asked in request.topics:
            for one in asked.partitions:
                one.log_start_offset = 0
        if self.version >= 15:
            request.replica_state = FetchRequest.ReplicaState(replica_id=self.replica_id, replica_epoch=77)
        else:
            request.replica_id = self.replica_id
        request.session_id, request.session_epoch = self.session_id, self.epoch
        return request

    def ask(self, offsets: dict[int, int], **fields: Any) -> dict[int, FetchResponse.PartitionData]:
        return self.take(self.harness.ask(self.request(offsets, **fields), self.version, self.client_id))

    def error(self, offsets: dict[int, int]) -> int:
        """Return the error of an answer that contains nothing else."""
        answer: FetchResponse = self.harness.ask(self.request(offsets), self.version, self.client_id)
        assert not answer.responses
        return answer.error_code

    def begin(self, offsets: dict[int, int], max_wait_ms: int = 60_000) -> Any:
        request = self.request(offsets, max_wait_ms)
        task = self.harness.loop.create_task(self.harness.answer(request, self.version, self.client_id))
        self.harness.turn()
        self.epoch += 1
        return task

    def take(self, answer: FetchResponse) -> dict[int, FetchResponse.PartitionData]:
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.session_id = answer.session_id
        self.epoch += 1
        return {data.partition_index: data for found in answer.responses for data in found.partitions}


def partition_of(harness: Harness, topic: str, index: int = 0) -> Partition:
    partition = harness.broker.replicas.get(topic, index)
    assert partition is not None
    return partition


def busy(harness: Harness) -> list[int]:
    (session,) = harness.broker.follower_sessions.cache
    return [position.index for position in (*session.busy, *session.resting)]


def state_of(partition: Partition) -> Any:
    return partition.in_sync.followers[FOLLOWER]


def idle(harness: Harness, topic: str) -> tuple[Fetches, FollowerSession]:
    """Return the only session of a follower that is level with partition 0 and has sent nothing on it for an hour."""
    follower = Fetches(harness, topic)
    follower.ask({0: 0})
    follower.ask({})
    (session,) = harness.broker.follower_sessions.cache
    session.last_fetch_ms += 3_600_000
    return follower, session


@pytest.mark.parametrize("version", [12, 13, 14, 15, 16, 17, 18])
def test_only_what_moves_is_looked_at(harness: Harness, topic: str, version: int) -> None:
    follower = Fetches(harness, topic, version)
    harness.produce(topic, b"a", partition=1)
    first = follower.ask({0: 0, 1: 0, 2: 0})
    assert sorted(first) == [0, 1, 2]
    assert [record.value for record in records_of(first[1])] == [b"a"]
    assert busy(harness) == [1]
    assert follower.ask({1: 1})[1].high_watermark == 1
    assert partition_of(harness, topic, 1).high_watermark == 1
    assert busy(harness) == []
    assert follower.ask({}) == {}
    harness.produce(topic, b"b", partition=2)
    assert busy(harness) == [2]
    third = follower.ask({})
    assert {index: [record.value for record in records_of(data)] for index, data in third.items()} == {2: [b"b"]}
    assert partition_of(harness, topic).in_sync.broker_epoch(FOLLOWER) == (77 if version >= 15 else -1)


def test_an_answer_that_was_lost_is_given_again(harness: Harness, topic: str) -> None:
    follower = Fetches(harness, topic)
    harness.produce(topic, b"a")
    follower.ask({0: 0})
    assert [record.value for record in records_of(follower.ask({})[0])] == [b"a"]


def test_one_that_was_idle_was_level_until_its_sessions_last_fetch(harness: Harness, topic: str) -> None:
    """Otherwise the first record after a long idle time would put it out of the in-sync replicas."""
    partition = partition_of(harness, topic)
    _, session = idle(harness, topic)
    harness.produce(topic, b"a")
    assert state_of(partition).last_caught_up_ms == session.last_fetch_ms
    assert partition.in_sync.isr_to_shrink(partition.log_end_offset, session.last_fetch_ms + 30_000) is None
    assert partition.in_sync.isr_to_shrink(partition.log_end_offset, session.last_fetch_ms + 30_001) == [0]


def test_one_that_was_idle_was_level_until_its_session_ended(harness: Harness, topic: str) -> None:
    _, session = idle(harness, topic)
    Fetches(harness, topic).ask({1: 0})
    assert state_of(partition_of(harness, topic)).last_caught_up_ms == session.last_fetch_ms


def test_one_that_was_idle_was_level_until_its_follower_gave_it_up(harness: Harness, topic: str) -> None:
    """It may be back in a moment, and records may have come meanwhile: it stays in the in-sync replicas until then."""
    follower, session = idle(harness, topic)
    level_ms = session.last_fetch_ms
    request = follower.request({})
    request.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic_id=follower.name, partitions=[0])]
    follower.take(harness.ask(request, 17, follower.client_id))
    assert state_of(partition_of(harness, topic)).last_caught_up_ms == level_ms


def test_a_waiting_fetch_is_woken_by_records(harness: Harness, topic: str) -> None:
    follower = Fetches(harness, topic)
    follower.ask({0: 0, 1: 0})
    waiting = follower.begin({})
    assert not waiting.done()
    produced = harness.produce(topic, b"a", partition=1)
    assert produced.error_code == 0
    (found,) = harness.run(waiting).responses[0].partitions
    assert [record.value for record in records_of(found)] == [b"a"]


def test_a_waiting_fetch_is_woken_by_the_end_of_a_leadership(harness: Harness, topic: str) -> None:
    follower = Fetches(harness, topic, 16)
    follower.ask({0: 0, 1: 0})
    waiting = follower.begin({})
    harness.hand_over(topic, 1)
    (found,) = harness.run(waiting).responses[0].partitions
    assert (found.partition_index, found.error_code) == (1, ErrorCode.FENCED_LEADER_EPOCH)


def test_a_waiting_fetch_is_woken_by_a_deletion(harness: Harness, topic: str) -> None:
    follower = Fetches(harness, topic, 12)
    follower.ask({0: 0})
    waiting = follower.begin({})
    harness.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5)
    (found,) = harness.run(waiting).responses[0].partitions
    assert found.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_where_retention_has_the_log_begin_is_told_of_a_partition_at_rest(harness: Harness, topic: str) -> None:
    """Otherwise deleted records would be back when the follower leads."""
    harness.produce(topic, b"a", b"b")
    follower = Fetches(harness, topic)
    for _ in range(2):
        follower.ask({0: 2})
    waiting = follower.begin({})
    partition = partition_of(harness, topic)
    partition.leadership.check_progress(harness.broker.now_ms())
    harness.turn()
    assert not waiting.done()
    assert partition.log is not None
    partition.log.retention.advance_log_start_offset(2)
    partition.leadership.check_progress(harness.broker.now_ms())
    (found,) = harness.run(waiting).responses
    assert [data.log_start_offset for data in found.partitions] == [2]


def test_how_far_records_are_committed_wakes_it_only_where_consumers_read_from_followers(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at_once in (False, True):
        monkeypatch.setattr(harness.broker.follower_sessions, "notifies_at_once", at_once)
        follower = Fetches(harness, topic)
        end = harness.produce(topic, b"a").base_offset + 1
        follower.ask({0: end - 1})
        waiting = follower.begin({0: end})
        assert waiting.done() == at_once
        if at_once:
            (found,) = harness.run(waiting).responses[0].partitions
            assert (found.high_watermark, bytes(bytes_of(found))) == (end, b"")
        else:
            waiting.cancel()
            harness.turn()


def test_a_fetcher_that_comes_back_takes_its_place_anew(harness: Harness, topic: str) -> None:
    follower = Fetches(harness, topic)
    follower.ask({0: 0})
    waiting = follower.begin({})
    again = Fetches(harness, topic)
    again.ask({0: 0, 1: 0})
    assert waiting.done()
    assert len(harness.broker.follower_sessions) == 1
    other = Fetches(harness, topic, client_id="broker-5-fetcher-1")
    other.ask({2: 0})
    assert len(harness.broker.follower_sessions) == 2
    harness.broker.follower_sessions.forget(lambda broker_id: broker_id != FOLLOWER)
    assert len(harness.broker.follower_sessions) == 0
    assert not partition_of(harness, topic).delayed.active


def test_who_poses_as_many_followers_gets_no_more_sessions_than_there_are_slots(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = harness.broker.follower_sessions
    now_ms = [harness.broker.now_ms()]
    alive: set[int] = set()
    monkeypatch.setattr(type(harness.broker), "now_ms", staticmethod(lambda: now_ms[0]))
    monkeypatch.setattr(harness.broker.metadata, "is_alive", alive.__contains__)
    monkeypatch.setattr(sessions.cache, "slots", 3)
    first, *others = [Fetches(harness, topic, client_id=f"stranger {number}") for number in range(6)]
    for one in (first, *others):
        now_ms[0] += 1
        one.ask({0: 0})
        one.epoch = 1 if one.session_id else 0
    assert [one.session_id > 0 for one in (first, *others)] == [True] * 3 + [False] * 3
    assert len(sessions) == len(sessions.fetchers) == sessions.cache.position_count == 3
    # A stranger's session is evicted for a broker of the cluster, but not the other way round.
    alive.add(FOLLOWER + 1)
    follower = Fetches(harness, topic, client_id="follower", replica_id=FOLLOWER + 1)
    follower.ask({0: 0})
    assert follower.session_id and len(sessions) == len(sessions.fetchers) == 3
    assert first.error({1: 0}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # After a long time without a fetch, any session is evicted.
    now_ms[0] += EVICT_AFTER_MS
    for one in others[-3:]:
        one.ask({0: 0})
        assert one.session_id
    assert follower.error({1: 0}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.forget(alive.__contains__)
    assert len(sessions) == len(sessions.fetchers) == sessions.cache.position_count == 0
    monkeypatch.setattr(sessions.cache, "slots", 0)
    first.begin_anew()
    first.ask({0: 0})
    assert not first.session_id


def test_sessions_remember_only_so_many_partitions(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gregor.broker.fetch.session_cache.MAX_POSITIONS", 4)
    sessions = harness.broker.follower_sessions
    follower, other = Fetches(harness, topic), Fetches(harness, topic, client_id="other")
    follower.ask({0: 0, 1: 0})
    other.ask({0: 0})
    follower.ask({2: 0})
    assert sessions.cache.position_count == 4
    assert follower.error({7: 0}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.cache.position_count == 1
    follower.begin_anew()
    assert len(follower.ask({0: 0, 1: 0, 2: 0, 7: 0})) == 4  # served, but not remembered
    assert (follower.session_id, sessions.cache.position_count) == (0, 1)
    follower.begin_anew()
    follower.ask({0: 0, 1: 0, 2: 0})
    assert follower.session_id and sessions.cache.position_count == 4


def test_a_session_is_counted(harness: Harness, topic: str) -> None:
    follower = Fetches(harness, topic)
    follower.ask({0: 0})
    for session_id, epoch, version, error in (
        (follower.session_id, 2, 17, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (follower.session_id + 1, 1, 17, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (follower.session_id, 1, 12, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        wrong = Fetches(harness, topic, version)
        wrong.session_id, wrong.epoch = session_id, epoch
        assert harness.ask(wrong.request({}), version).error_code == error
    without = Fetches(harness, topic)
    without.epoch = -1
    answer = harness.ask(without.request({0: 0}), 17, "other")
    assert (answer.error_code, answer.session_id, len(answer.responses)) == (0, 0, 1)
    assert len(harness.broker.follower_sessions) == 1
    gone = follower.request({})
    gone.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic_id=follower.name, partitions=[0])]
    assert harness.ask(gone, 17).responses == []
    assert not partition_of(harness, topic).delayed.active


def test_who_catches_up_is_proposed(harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proposed: list[list[int]] = []
    propose: Any = lambda partition, isr: proposed.append(isr)  # noqa: E731
    monkeypatch.setattr(harness.broker.follower_sessions, "alter_partition", propose)
    partition = partition_of(harness, topic)
    partition.isr_decided([0], partition.partition_epoch + 1, harness.broker.now_ms())
    harness.produce(topic, b"a")
    assert partition.high_watermark == 1
    brokers = harness.broker.metadata.brokers
    monkeypatch.setattr(harness.broker.metadata, "brokers", {**brokers, FOLLOWER: brokers[0]})
    follower = Fetches(harness, topic)
    follower.ask({0: 0})
    assert proposed == []
    follower.ask({0: 1})
    assert proposed == [[0, FOLLOWER]]
    follower.ask({})
    assert proposed == [[0, FOLLOWER]] * 2, "until it is in"


def test_many_that_may_not_join_the_set_keep_nobody_waiting_and_nobody_busy(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While there is no controller, the partitions are checked in turns, and all others get their records as usual."""
    monkeypatch.setattr("gregor.broker.fetch.follower.MAX_PARTITIONS", 1)
    looked: list[int] = []
    propose: Any = lambda partition, isr: looked.append(partition.partition)  # noqa: E731
    monkeypatch.setattr(harness.broker.follower_sessions, "alter_partition", propose)
    brokers = harness.broker.metadata.brokers
    monkeypatch.setattr(harness.broker.metadata, "brokers", {**brokers, FOLLOWER: brokers[0]})
    for index in range(2):
        led = partition_of(harness, topic, index)
        led.isr_decided([0], led.partition_epoch + 1, harness.broker.now_ms())
    follower = Fetches(harness, topic)
    answers = [follower.ask({0: 0, 1: 0, 2: 0}), follower.ask({}), follower.ask({}), follower.ask({})]
    assert [list(answer) for answer in answers] == [[0], [1], [2], []]
    waiting = follower.begin({})
    assert not waiting.done(), "there is nothing to tell, and it was told"
    harness.produce(topic, b"a", partition=2)
    (found,) = harness.run(waiting).responses
    assert [data.partition_index for data in found.partitions] == [2]
    looked.clear()
    for _ in range(4):
        follower.ask({2: 1})
    assert sorted(set(looked)) == [0, 1]


def test_where_a_leadership_began_while_a_fetch_waited_the_next_one_counts(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader learns the follower's position at its next fetch, although no record comes.

    This broker was no leader when the fetch came, and so did not record the follower's position. Without new records
    the partition was never checked again, and the follower stayed out of the in-sync replicas (seen with 5,000 new
    partitions on a slow disk).
    """
    monkeypatch.setattr("gregor.broker.fetch.follower.MAX_PARTITIONS", 1)
    first, second = partition_of(harness, topic, 0), partition_of(harness, topic, 1)
    first.isr_decided([0], first.partition_epoch + 1, harness.broker.now_ms())
    role = state(0, second.leader_epoch, second.isr, second.replicas, second.partition_epoch)
    second.become_follower(state(7, second.leader_epoch, second.isr, second.replicas, second.partition_epoch))
    follower = Fetches(harness, topic)
    assert list(follower.ask({0: 0, 1: 0})) == [0]
    assert follower.ask({})[1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with standing_clock(harness.loop):
        waiting = follower.begin({}, max_wait_ms=20)
        assert second.become_leader(role, harness.broker.now_ms())
    (found,) = harness.run(waiting).responses[0].partitions
    assert (found.partition_index, found.error_code) == (1, 0)
    for _ in range(2):  # they have their turns
        follower.ask({})
    assert state_of(second).log_end_offset == 0


def test_many_that_are_throttled_keep_nobody_waiting_and_nobody_busy(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gregor.broker.fetch.follower.MAX_PARTITIONS", 1)
    clock_s = [0.0]
    throttle = ReplicaThrottle(0, lambda: 1000, lambda: clock_s[0])
    monkeypatch.setattr(harness.broker.follower_sessions, "throttle", throttle)
    harness.alter_topic(topic, leader_replication_throttled_replicas="0:0,1:0")
    for index in range(2):
        harness.produce(topic, b"a" * 500, partition=index)
        led = partition_of(harness, topic, index)
        led.isr_decided([0], led.partition_epoch + 1, harness.broker.now_ms())
    throttle.charge(10_000)
    follower = Fetches(harness, topic)
    follower.ask({0: 0, 1: 0, 2: 0})
    for _ in range(3):
        follower.ask({})
    waiting = follower.begin({})
    assert not waiting.done()
    harness.produce(topic, b"b", partition=2)
    (found,) = harness.run(waiting).responses
    assert [data.partition_index for data in found.partitions] == [2]
    given = set()
    for _ in range(6):
        clock_s[0] += 100
        given |= {index for index, data in follower.ask({2: 1}).items() if data.records}
    assert given == {0, 1}


@pytest.mark.parametrize("version", [12, 17])
def test_a_broker_without_a_replica(harness: Harness, version: int) -> None:
    name = f"alone-{version}"
    harness.create_topic(name)
    follower = Fetches(harness, name, version)
    request = follower.request({0: 0})
    for asked in request.topics:
        asked.partitions[0].current_leader_epoch = 0
    (found,) = follower.take(harness.ask(request, version)).values()
    assert (found.error_code, bytes(bytes_of(found)), found.high_watermark) == (ErrorCode.UNKNOWN_LEADER_EPOCH, b"", -1)


def test_a_place_outside_the_log_says_nothing_of_the_follower(harness: Harness, topic: str) -> None:
    harness.produce(topic, b"a")
    follower = Fetches(harness, topic)
    assert follower.ask({0: 9})[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert state_of(partition_of(harness, topic)).log_end_offset == -1
    assert partition_of(harness, topic).high_watermark == 0


def test_where_logs_diverge_is_told_and_the_high_watermark_stays(harness: Harness, topic: str) -> None:
    harness.produce(topic, b"a")  # epoch 1, as the fixture made it
    follower = Fetches(harness, topic)
    request = follower.request({0: 1})
    request.topics[0].partitions[0].last_fetched_epoch = 0
    (found,) = follower.take(harness.ask(request, 17)).values()
    assert (found.error_code, found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 0, 0)
    assert partition_of(harness, topic).high_watermark == 0


@pytest.mark.parametrize("why", ["diverged", "another-epoch"])
def test_who_took_nothing_from_an_answer_is_told_again(harness: Harness, topic: str, why: str) -> None:
    """How far records are committed, of a partition at rest: else its replica would not know before the next record."""
    harness.produce(topic, b"a")  # epoch 1, as the fixture made it
    partition = partition_of(harness, topic)
    partition.isr_decided([0], partition.partition_epoch + 1, harness.broker.now_ms())
    assert partition.high_watermark == 1
    follower = Fetches(harness, topic)
    request = follower.request({0: 1})
    if why == "diverged":
        request.topics[0].partitions[0].last_fetched_epoch = 0
    else:
        request.topics[0].partitions[0].current_leader_epoch = -1
    follower.take(harness.ask(request, 17))
    (told,) = follower.ask({0: 1}).values()
    assert (told.error_code, told.high_watermark) == (0, 1)
    assert follower.ask({}) == {}


def test_a_long_answer_stays_within_its_limits(harness: Harness, topic: str) -> None:
    for index in range(3):
        harness.produce(topic, b"a" * 1000, partition=index)
    follower = Fetches(harness, topic)
    served: list[int] = []
    while len(served) < 3:
        found = follower.ask(dict.fromkeys(range(3), 0) if not served else {served[-1]: 1}, max_bytes=1100)
        with_records = [index for index, data in found.items() if data.records]
        assert len(with_records) == 1
        served += with_records
    assert sorted(served) == [0, 1, 2], "who was served is at the end of the row"


def test_a_throttled_replica_waits_while_it_is_not_in_sync(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = [0.0]
    throttle = ReplicaThrottle(0, lambda: 1000, lambda: clock_s[0])
    monkeypatch.setattr(harness.broker.follower_sessions, "throttle", throttle)
    harness.alter_topic(topic, leader_replication_throttled_replicas="0:0,1:5")
    partition = partition_of(harness, topic)
    for index in range(2):
        harness.produce(topic, b"a" * 500, partition=index)
        led = partition_of(harness, topic, index)
        led.isr_decided([0], led.partition_epoch + 1, harness.broker.now_ms())
    follower = Fetches(harness, topic)
    assert len(bytes_of(follower.ask({0: 0})[0])) > 500
    harness.produce(topic, b"b")
    assert len(bytes_of(follower.ask({0: 1})[0])) == 0
    found = follower.ask({1: 0})
    assert len(bytes_of(found[1])) > 500, "of that partition another replica is throttled"
    clock_s[0] += 1
    assert [record.value for record in records_of(follower.ask({})[0])] == [b"b"]
    harness.produce(topic, b"c" * 5000)
    follower.ask({0: 2})
    partition.isr_decided([0, FOLLOWER], partition.partition_epoch + 1, harness.broker.now_ms())
    harness.produce(topic, b"d")
    assert len(bytes_of(follower.ask({0: 3})[0])) > 0, "in sync, it is not held back"
