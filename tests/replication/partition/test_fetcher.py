"""Following a leader: real partitions and logs on both sides, questions and answers carried by hand."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import FetchRequest, FetchResponse
from gregor.protocol.turns import run_all
from gregor.replication.partition.delete_records import delete_records_before
from gregor.replication.partition.fetcher import Fetcher, FetcherSettings
from gregor.replication.partition.offset_lookup import truncation_offset
from gregor.replication.partition.throttle import ReplicaThrottle
from tests.replication.replicas import NOW, TOPIC_ID, Replica, answer, exchange, pair, state, sync
from tests.storage.logs import batch, log_config


def test_records_and_the_high_watermark_come_over() -> None:
    leader, follower = pair(10)
    while follower.log.log_end_offset < 10:  # an answer ends with a segment
        exchange(follower, leader)
    assert (follower.log.log_end_offset, follower.log.high_watermark) == (10, 6)
    exchange(follower, leader)
    assert leader.partition.high_watermark == 10
    assert follower.log.high_watermark == 10
    assert follower.contents(10) == leader.contents(10)
    assert follower.log.epochs.entries() == [(0, 0)]


def test_a_session_names_only_what_has_changed() -> None:
    leader, follower = pair(1)
    first = follower.fetcher.request(NOW, 5)
    assert (first.session_id, first.session_epoch, len(first.topics)) == (0, 0, 1)
    assert first.replica_state.replica_id == 1 and first.replica_state.replica_epoch == 5
    run_all(follower.fetcher.complete(answer(leader, follower, first), NOW))
    second = follower.fetcher.request(NOW, 5)
    assert (second.session_id, second.session_epoch) == (7, 1)
    assert [p.fetch_offset for topic in second.topics for p in topic.partitions] == [1]
    run_all(follower.fetcher.complete(answer(leader, follower, second), NOW))
    third = follower.fetcher.request(NOW, 5)
    assert (third.session_epoch, third.topics, third.forgotten_topics_data) == (2, [], [])
    follower.fetcher.unfollow(("orders", 0))
    run_all(follower.fetcher.complete(answer(leader, follower, third), NOW))
    fourth = follower.fetcher.request(NOW, 5)
    assert [(gone.topic, gone.topic_id, gone.partitions) for gone in fourth.forgotten_topics_data] == [
        ("orders", TOPIC_ID, [0])
    ]
    assert follower.fetcher.wait_ms(NOW) is None


def test_retention_here_does_not_keep_an_answer_out() -> None:
    leader, follower = pair(20)
    while (request := follower.fetcher.request(NOW, 5)).topics:
        run_all(follower.fetcher.complete(answer(leader, follower, request), NOW))
    follower.log.retention.advance_log_start_offset(5)
    leader.append()
    run_all(follower.fetcher.complete(answer(leader, follower, request), NOW))
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (5, 21)
    (topic,) = follower.fetcher.request(NOW, 5).topics
    assert [(asked.fetch_offset, asked.log_start_offset) for asked in topic.partitions] == [(21, 5)]


def test_a_lost_session_or_answer_begins_anew() -> None:
    leader, follower = pair(1)
    exchange(follower, leader)
    follower.fetcher.request(NOW, 5)
    follower.fetcher.failed(NOW)
    again = follower.fetcher.request(NOW, 5)
    assert (again.session_id, again.session_epoch, len(again.topics)) == (7, 0, 1)
    run_all(follower.fetcher.complete(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), NOW))
    again = follower.fetcher.request(NOW, 5)
    assert (again.session_id, again.session_epoch, len(again.topics)) == (0, 0, 1)
    no_session = answer(leader, follower, again)
    no_session.session_id = 0
    run_all(follower.fetcher.complete(no_session, NOW))
    again = follower.fetcher.request(NOW, 5)
    assert (again.session_id, again.session_epoch, len(again.topics)) == (0, 0, 1)


def test_topics_without_an_id_are_asked_for_by_name() -> None:
    fetcher = Fetcher(FetcherSettings(1))
    assert fetcher.max_version == FetchRequest.MAX_VERSION
    old = Replica(1, "old", ZERO_UUID)
    fetcher.follow(old.partition)
    assert fetcher.max_version == 12
    fetcher.unfollow(("old", 0))
    assert fetcher.max_version == FetchRequest.MAX_VERSION


@pytest.mark.parametrize("leads", [False, True])
def test_many_small_batches_are_written_in_steps(leads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.replication.partition.fetcher.MAX_BATCHES", 2)
    leader, follower = pair(5)
    request = follower.fetcher.request(NOW, 5)
    steps = follower.fetcher.complete(answer(leader, follower, request), NOW)
    ends = []
    for _ in steps:
        ends.append(follower.log.log_end_offset)
        if leads and len(ends) == 2:
            # The fetcher is not notified of it yet.
            follower.partition.become_leader(state(1, 1, [1], [0, 1], 1), NOW)
    assert ends == ([2, 4, 4] if leads else [2, 4, 5])
    if not leads:
        exchange(follower, leader)
        assert leader.partition.high_watermark == 5


def test_positions_from_before_a_leader_epoch_that_the_leader_missed_do_not_count() -> None:
    first, second, third = Replica(0), Replica(1), Replica(2)
    replicas = [0, 1, 2]
    first.lead(0, replicas, replicas, 0)
    for follower in (second, third):
        follower.follow(0, 0, replicas, replicas, 0)
    first.append(4)
    for _ in range(2):
        exchange(second, first)
        exchange(third, first)
    answers: list[ErrorCode] = []
    first.append(3)
    first.partition.leadership.when_committed(7, answers.append)
    exchange(third, first)
    exchange(third, first)
    assert (first.partition.high_watermark, third.log.log_end_offset, second.log.log_end_offset) == (4, 7, 4)
    # The first leader does not receive that the second leads; the third does, and truncates its log.
    second.lead(1, replicas, replicas, 1)
    third.follow(1, 1, replicas, replicas, 1)
    while third.log.log_end_offset != 4:
        exchange(third, second)
    first.lead(2, [0, 2], replicas, 2)
    assert (first.partition.high_watermark, answers) == (4, [])
    third.follow(0, 2, [0, 2], replicas, 2)
    while first.partition.high_watermark < 7:
        exchange(third, first)
    assert (third.log.log_end_offset, answers) == (7, [ErrorCode.NONE])
    assert third.contents(7) == first.contents(7)


def test_positions_last_while_the_leader_stays() -> None:
    leader, follower = pair()
    leader.append(3)
    exchange(follower, leader)
    exchange(follower, leader)
    leader.append(2)
    exchange(follower, leader)
    leader.lead(1, [0], [0, 1], 1)
    assert leader.partition.in_sync.followers[1].log_end_offset == 3


def test_names_of_topics_that_are_gone_do_not_add_up() -> None:
    fetcher = Fetcher(FetcherSettings(1))
    for number in range(20):
        fetcher.follow(Replica(1, f"t{number}", bytes([number + 1]) * 16).partition)
        fetcher.unfollow((f"t{number - 2}", 0))
    assert len(fetcher._names) <= 8 and {fetcher._names[bytes([n]) * 16] for n in (19, 20)} == {"t18", "t19"}


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    leader, follower = pair(1)
    exchange(follower, leader)
    again = Replica(1, topic_id=bytes(16).replace(b"\0", b"\1"))
    again.partition.become_follower(state(0, 0, [0, 1], [0, 1], 0))
    follower.fetcher.unfollow(("orders", 0))
    follower.fetcher.follow(again.partition)
    request = follower.fetcher.request(NOW, 5)
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [TOPIC_ID]
    assert [topic.topic_id for topic in request.topics] == [again.partition.topic_id]


def test_what_the_new_leader_does_not_have_is_cut_off() -> None:
    """Two epochs in which each had records of its own: one question for each epoch that is not common."""
    a, b = pair(5)
    exchange(b, a)
    for number in range(4):
        a.append(value=30 + number)  # never reaches b
    b.lead(1, [1], [0, 1], 1)
    b.append(3, 50)
    a.follow(1, 1, [1], [0, 1], 1)
    assert a.log.log_end_offset == 9
    exchange(a, b)
    assert a.log.log_end_offset == 5
    exchange(a, b)
    assert a.contents(8) == b.contents(8)
    assert a.log.epochs.entries() == b.log.epochs.entries() == [(0, 0), (1, 5)]


def test_a_log_of_no_epoch_is_cut_back_to_what_is_committed() -> None:
    follower = Replica(1)
    follower.log.append_as_leader(batch(3), -1, NOW)
    assert follower.log.latest_epoch() is None
    follower.log.offsets.restore_high_watermark(0)
    follower.partition.become_follower(state(0, 0, [0, 1], [0, 1], 0))
    follower.fetcher.follow(follower.partition)
    assert follower.log.log_end_offset == 0


def test_nothing_is_asked_for_behind_a_cut_that_is_not_on_the_disk() -> None:
    leader, follower = pair(3)
    exchange(follower, leader)
    other = Replica(1, "other")
    other.fetcher = follower.fetcher
    other.follow(0, 0, [0, 1], [0, 1], 0)
    follower.log.truncate_to(2)
    follower.partition.become_follower(state(0, 1, [0, 1], [0, 1], 1))
    follower.fetcher.follow(follower.partition)
    request = follower.fetcher.request(NOW, 5)
    assert [topic.topic for topic in request.topics] == ["other"]
    run_all(follower.fetcher.complete(FetchResponse(session_id=7), NOW))
    follower.fetcher.unfollow(("other", 0))
    assert follower.fetcher.wait_ms(NOW) is None
    assert follower.fetcher.truncated_logs() == [follower.log]
    follower.log.flusher.flush()
    assert not follower.log.flusher.is_truncated
    follower.fetcher.synced(follower.log)
    assert follower.fetcher.wait_ms(NOW) == 0
    (topic,) = follower.fetcher.request(NOW, 5).topics
    assert [partition.fetch_offset for partition in topic.partitions] == [2]


@pytest.mark.parametrize(("start", "end", "expected"), [(20, 30, (20, 20)), (0, 2, (0, 2)), (0, 50, (0, 4))])
def test_a_place_outside_the_leaders_log(start: int, end: int, expected: tuple[int, int]) -> None:
    leader, follower = pair(4)
    exchange(follower, leader)
    request = follower.fetcher.request(NOW, 5)
    outside = answer(leader, follower, request)
    outside.responses[0].partitions[0] = FetchResponse.PartitionData(
        error_code=ErrorCode.OFFSET_OUT_OF_RANGE, records=b""
    )
    assert run_all(follower.fetcher.complete(outside, NOW)) == [("orders", 0)]
    assert follower.fetcher.wait_ms(NOW) == 20
    follower.fetcher.reset_to_range(("orders", 0), 0, start, end, NOW)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == expected
    sync(follower)
    assert follower.fetcher.wait_ms(NOW) == 0


def test_who_is_outside_again_and_again_asks_less_often() -> None:
    leader, follower = pair(4)
    exchange(follower, leader)
    for wait_ms in (0, 40, 80):
        outside = answer(leader, follower, follower.fetcher.request(NOW + 1000, 5))
        outside.responses[0].partitions[0] = FetchResponse.PartitionData(
            error_code=ErrorCode.OFFSET_OUT_OF_RANGE, records=b""
        )
        follower.fetcher.failed(NOW)
        follower.fetcher.request(NOW + 1000, 5)
        run_all(follower.fetcher.complete(outside, NOW))
        follower.fetcher.reset_to_range(("orders", 0), 0, 0, 50, NOW)
        assert follower.fetcher.wait_ms(NOW) == wait_ms


def test_a_leaders_log_that_starts_within_a_batch() -> None:
    leader, follower = Replica(0), Replica(1)
    leader.lead(0, [0], [0, 1], 0)
    for _ in range(2):
        leader.append(10)
    delete_records_before(leader.partition, 13)
    follower.follow(0, 0, [0], [0, 1], 0)
    assert exchange(follower, leader) == [("orders", 0)]
    follower.fetcher.reset_to_range(("orders", 0), 0, 13, 20, NOW)
    assert follower.log.log_end_offset == 13
    for _ in range(2):
        exchange(follower, leader)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (13, 20)
    assert follower.contents(20) == leader.contents(20)


def test_a_leader_that_cannot_tell_where_an_epoch_ends() -> None:
    leader, follower = pair(5)
    while follower.log.high_watermark < 5:
        exchange(follower, leader)
    follower.log.truncate_to(truncation_offset(follower.log, 0, -1), NOW)
    assert follower.log.log_end_offset == 5


def test_errors_are_waited_out_and_a_newer_epoch_is_waited_for() -> None:
    leader, follower = pair(1)
    waits = [20, 40, 80, 160, 320, 640, 1000, 1000]
    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR]
    for wait, code in zip(waits, codes * 3, strict=False):
        request = follower.fetcher.request(NOW, 5)
        refused = answer(leader, follower, request)
        refused.responses[0].partitions[0] = FetchResponse.PartitionData(error_code=code, records=b"")
        run_all(follower.fetcher.complete(refused, NOW))
        assert follower.fetcher.wait_ms(NOW) == wait
        too_early = follower.fetcher.request(NOW + wait - 1, 5)
        assert (too_early.topics, too_early.max_wait_ms) == ([], 1)
        run_all(follower.fetcher.complete(FetchResponse(session_id=7), NOW + wait - 1))
        assert follower.fetcher.wait_ms(NOW + wait) == 0
        again = follower.fetcher.request(NOW + wait, 5)
        assert len(again.topics) == 1
        follower.fetcher.failed(NOW)
    request = follower.fetcher.request(NOW + 5000, 5)
    refused = answer(leader, follower, request)
    refused.responses[0].partitions[0] = FetchResponse.PartitionData(
        error_code=ErrorCode.FENCED_LEADER_EPOCH, records=b""
    )
    run_all(follower.fetcher.complete(refused, NOW))
    assert follower.fetcher.followed() == []


def test_a_clock_that_is_set_back_makes_no_wait_longer() -> None:
    leader, follower = pair(1)
    refused = answer(leader, follower, follower.fetcher.request(NOW, 5))
    refused.responses[0].partitions[0] = FetchResponse.PartitionData(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, records=b""
    )
    run_all(follower.fetcher.complete(refused, NOW))
    earlier = NOW - 3_600_000
    assert follower.fetcher.wait_ms(earlier) == 0
    assert not follower.fetcher.request(earlier, 5).forgotten_topics_data, "it is fetched again"
    run_all(follower.fetcher.complete(FetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), NOW))
    assert follower.fetcher.wait_ms(NOW) == 1000
    assert follower.fetcher.wait_ms(earlier) == 0


def test_damaged_records_are_asked_for_again_later() -> None:
    leader, follower = pair(1)
    request = follower.fetcher.request(NOW, 5)
    damaged = answer(leader, follower, request)
    data = bytearray(damaged.responses[0].partitions[0].records)  # type: ignore[arg-type]
    data[70] ^= 1
    damaged.responses[0].partitions[0].records = data
    run_all(follower.fetcher.complete(damaged, NOW))
    assert (follower.log.log_end_offset, follower.fetcher.wait_ms(NOW)) == (0, 20)


def test_a_write_that_fails_is_tried_again_where_the_log_ends_then() -> None:
    """Not every error of the system is one of a disk, after which the partition goes offline."""
    leader, follower = pair(8)
    exchange(follower, leader)
    assert follower.log.log_end_offset == 6  # where a segment ends
    for number in range(8):
        leader.append(value=number)
    follower.files.fail("write", after=1, error=OSError(errno.EMFILE, "too many open files"))
    now_ms = NOW
    while follower.log.log_end_offset < 16:
        exchange(follower, leader, now_ms)
        now_ms += 20
        assert now_ms < NOW + 1000
    assert follower.contents(16) == leader.contents(16)


def test_an_answer_to_an_older_role_is_ignored() -> None:
    leader, follower = pair(3)
    request = follower.fetcher.request(NOW, 5)
    late = answer(leader, follower, request)
    follower.lead(1, [1], [0, 1], 1)
    run_all(follower.fetcher.complete(late, NOW))
    assert follower.log.log_end_offset == 0


def test_the_leaders_log_start_hides_the_same_records() -> None:
    leader, follower = pair(6)
    for _ in range(2):
        exchange(follower, leader)
    delete_records_before(leader.partition, 4)
    leader.append()
    for _ in range(2):
        exchange(follower, leader)
    assert follower.log.log_start_offset == 4


@pytest.mark.parametrize("seed", range(15))
def test_whatever_happens_committed_records_stay(seed: int) -> None:
    """Elections out of the ISR, lost questions and answers, small fetches: what was committed once is on every leader,
    and all logs agree below the smallest high watermark."""
    chance = random.Random(seed)
    replicas = [Replica(number) for number in range(3)]
    ids = [0, 1, 2]
    epoch = partition_epoch = 0
    leader = replicas[0]
    isr = [0, 1, 2]
    committed: list[bytes] = []

    def change(new_leader: int, new_isr: list[int]) -> None:
        nonlocal epoch, partition_epoch, leader, isr
        epoch, partition_epoch, isr = epoch + 1, partition_epoch + 1, new_isr
        leader = replicas[new_leader]
        for replica in chance.sample(replicas, 3):
            if replica is leader:
                replica.lead(epoch, isr, ids, partition_epoch)
            else:
                replica.follow(new_leader, epoch, isr, ids, partition_epoch)

    change(0, isr)
    for _ in range(250):
        what = chance.random()
        if what < 0.3:
            leader.append(chance.randrange(1, 4), chance.randrange(100))
        elif what < 0.85:
            follower = replicas[chance.randrange(3)]
            if follower is leader:
                continue
            request = follower.fetcher.request(NOW, 1)
            said = answer(leader, follower, request, chance.choice([1, 200, 1 << 20]))
            if chance.random() < 0.1:
                follower.fetcher.failed(NOW)
            else:
                for key in run_all(follower.fetcher.complete(said, NOW)):
                    log = leader.log
                    follower.fetcher.reset_to_range(key, epoch, log.log_start_offset, log.log_end_offset, NOW)
            wanted = leader.partition.in_sync.isr_to_expand(follower.broker_id, leader.partition.high_watermark)
            if wanted is not None:
                partition_epoch += 1
                isr = wanted
                leader.partition.isr_decided(isr, partition_epoch, NOW)
        elif what < 0.93:
            gone = chance.choice(isr)
            if gone != leader.broker_id:
                partition_epoch += 1
                isr = [number for number in isr if number != gone]
                leader.partition.isr_decided(isr, partition_epoch, NOW)
        else:
            candidates = [number for number in isr if number != leader.broker_id] or [leader.broker_id]
            change(chance.choice(candidates), [n for n in isr if n != leader.broker_id or len(isr) == 1] or isr)
        if what < 0.93 and chance.random() < 0.9:
            continue
        now_committed = leader.contents(leader.partition.high_watermark)
        assert now_committed[: len(committed)] == committed[: len(now_committed)]
        if len(now_committed) > len(committed):
            committed = now_committed
        assert leader.contents(leader.log.log_end_offset)[: len(committed)] == committed
    lowest = min(replica.log.high_watermark for replica in replicas)
    assert len({tuple(replica.contents(lowest)) for replica in replicas}) == 1


def followed_by(fetcher: Fetcher, count: int) -> list[Replica]:
    replicas = [Replica(1, f"topic-{number}", bytes([number + 1]) * 16) for number in range(count)]
    for replica in replicas:
        replica.partition.become_follower(state(0, 0, [0, 1], [0, 1], 0))
        fetcher.follow(replica.partition)
    return replicas


def test_many_partitions_are_told_of_by_and_by_as_long_as_there_is_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.replication.partition.fetcher.MAX_CHANGES", 2)
    fetcher = Fetcher(FetcherSettings(1))
    followed_by(fetcher, 5)
    asked = []
    for session_id in (7, 7, 7):
        request = fetcher.request(NOW, 5)
        asked.append((len(request.topics), request.max_wait_ms))
        run_all(fetcher.complete(FetchResponse(session_id=session_id), NOW))
    assert asked == [(2, 0), (2, 0), (1, 500)]
    fetcher.failed(NOW)
    assert len(fetcher.request(NOW, 5).topics) == 2
    run_all(fetcher.complete(FetchResponse(session_id=0), NOW))
    request = fetcher.request(NOW, 5)
    assert (len(request.topics), request.max_wait_ms) == (5, 500), "without a session all of them, each time"


@pytest.mark.parametrize("why", ["waiting", "unfollowed"])
def test_what_was_told_of_a_partition_that_was_not_asked_for_is_told_again(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader did not know yet that the partition is not fetched: it would not send its high watermark again."""
    monkeypatch.setattr("gregor.replication.partition.fetcher.MAX_CHANGES", 1)
    fetcher = Fetcher(FetcherSettings(1, backoff_ms=1000))
    replicas = followed_by(fetcher, 2)
    late = replicas[1].partition

    def told(*numbers: int, **fields: Any) -> FetchResponse:
        data = FetchResponse.PartitionData(partition_index=0, records=b"", **fields)
        ids = [replicas[number].partition.topic_id for number in numbers]
        found = [FetchResponse.FetchableTopicResponse(topic_id=id_, partitions=[data]) for id_ in ids]
        return FetchResponse(session_id=7, responses=found)

    for numbers in ((0,), (1,), (), ()):
        fetcher.request(NOW, 5)
        run_all(fetcher.complete(told(*numbers, high_watermark=0, log_start_offset=0), NOW))
    if why == "waiting":
        fetcher.request(NOW, 5)
        run_all(fetcher.complete(told(0, 1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), NOW))
    else:
        for replica in replicas:
            fetcher.unfollow((replica.partition.topic, 0))
    request = fetcher.request(NOW, 5)
    assert [gone.topic_id for gone in request.forgotten_topics_data] == [replicas[0].partition.topic_id]
    run_all(fetcher.complete(told(1, high_watermark=0, log_start_offset=0), NOW))
    if why == "unfollowed":
        fetcher.follow(late)
    events = []
    for _ in range(5):
        request = fetcher.request(NOW + 1000, 5)
        events += ["forget" for gone in request.forgotten_topics_data if gone.topic_id == late.topic_id]
        events += ["ask" for topic in request.topics if topic.topic_id == late.topic_id]
        run_all(fetcher.complete(told(), NOW + 1000))
    assert events == ["forget", "ask"], "in two requests: Apache Kafka looks at what is asked first"


def test_a_refusal_is_waited_out() -> None:
    _, follower = pair(1)
    follower.fetcher.request(NOW, 5)
    run_all(follower.fetcher.complete(FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), NOW))
    assert follower.fetcher.wait_ms(NOW) == 1000
    assert follower.fetcher.wait_ms(NOW + 1000) == 0


def test_a_throttled_replica_that_lags_pauses_and_one_in_step_does_not() -> None:
    clock_s = [0.0]
    throttle = ReplicaThrottle(1, lambda: 100, lambda: clock_s[0])
    leader, follower = Replica(0), Replica(1)
    follower.fetcher = Fetcher(FetcherSettings(1), throttle)
    leader.lead(0, [0], [0, 1], 0)
    for number in range(3):
        leader.append(value=number)
    follower.log.configure(log_config(follower_replication_throttled_replicas=["0:1"]))
    follower.follow(0, 0, [0, 1], [0, 1], 0)
    exchange(follower, leader, max_bytes=1)
    assert follower.log.log_end_offset == 1
    request = follower.fetcher.request(NOW, 5)
    assert request.topics == [] and len(request.forgotten_topics_data) == 1
    run_all(follower.fetcher.complete(FetchResponse(session_id=7), NOW))
    wait_ms = follower.fetcher.wait_ms(NOW)
    assert wait_ms is not None and 0 < wait_ms <= 1000
    clock_s[0] += 60
    for _ in range(3):
        exchange(follower, leader, NOW + 1000)
        clock_s[0] += 60
    assert follower.log.log_end_offset == 3
    throttle.charge(10_000)
    exchange(follower, leader, NOW + 1000)
    assert follower.fetcher.wait_ms(NOW + 1000) == 0, "level with what is committed, it goes on"


def test_a_delay_holds_the_throttled_replicas_without_records_in_the_last_response_too() -> None:
    """Else each of them moves a fetch more, of which the throttle counts no more than a window."""
    clock_s, now_ms = [0.0], NOW
    throttle = ReplicaThrottle(1, lambda: 100, lambda: clock_s[0])
    fetcher = Fetcher(FetcherSettings(1), throttle)
    leaders = []
    for number, topic in enumerate(("a", "b", "free")):
        leader, follower = (Replica(one, topic, bytes([number]) * 16) for one in (0, 1))
        leader.lead(0, [0], [0, 1], 0)
        for _ in range(5):
            leader.append(value=400)
        named = [] if topic == "free" else ["*"]
        follower.log.configure(log_config(follower_replication_throttled_replicas=named))
        follower.partition.become_follower(state(0, 0, [0], [0, 1]))
        fetcher.follow(follower.partition)
        leaders.append(leader)
    sessions: dict[str, int] = {}
    """By topic: the fetch offset."""

    def respond_with(topic: str | None) -> list[str]:
        """Complete a request with a batch of one topic; the others have no room. Returns the topics of the session."""
        request = fetcher.request(now_ms, 5)
        for gone in request.forgotten_topics_data:
            del sessions[gone.topic]
        sessions.update({one.topic: one.partitions[0].fetch_offset for one in request.topics})
        responses = []
        for leader in leaders:
            if leader.partition.topic == topic:
                piece = leader.partition.read(sessions[topic], 1, replica_id=1)
                records = memoryview(piece.read())
                piece.release()
                data = FetchResponse.PartitionData(partition_index=0, records=records, high_watermark=5)
                topic_id = leader.partition.topic_id
                responses.append(FetchResponse.FetchableTopicResponse(topic_id=topic_id, partitions=[data]))
        run_all(fetcher.complete(FetchResponse(session_id=7, responses=responses), now_ms))
        return sorted(sessions)

    for _ in range(2):  # again when the first delay is over
        assert respond_with("a") == ["a", "b", "free"]
        assert respond_with("free") == ["free"], "no throttled replica is fetched while the throttle delays"
        clock_s[0] += 60
        now_ms += 60_000
