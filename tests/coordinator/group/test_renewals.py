"""Renewals of heartbeats beside the general path: whatever happens, a renewal serves a heartbeat as the coordinator
would, or does nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable

import pytest

from gregor.coordinator.group.shard import GroupShard
from gregor.coordinator.timers import LoopTimers
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ConsumerGroupHeartbeatRequest, HeartbeatRequest
from tests.coordinator.context import Context
from tests.coordinator.group.consumer.context import Consumer, ConsumerContext

SESSION_MS = 10_000


class Sent:
    """A heartbeat that was answered without error, and its renewal."""

    def __init__(self, context: Context, request: HeartbeatRequest | ConsumerGroupHeartbeatRequest) -> None:
        self.context = context
        self.request = request
        renew = (
            context.coordinator.heartbeat_renewal(request)
            if isinstance(request, HeartbeatRequest)
            else context.coordinator.consumer_heartbeat_renewal(request, "client", "/127.0.0.1")
        )
        assert renew is not None
        self.renew: Callable[[], bool] = renew
        self.first = self.general()

    def general(self) -> bytes:
        """The answer of the coordinator, encoded."""
        if isinstance(self.request, HeartbeatRequest):
            return bytes(self.context.coordinator.heartbeat(self.request, 4).encode(4))
        request = self.request
        answer = self.context.begin(
            lambda: self.context.coordinator.consumer_group_heartbeat(request, "client", "/127.0.0.1", 1)
        ).response
        return bytes(answer.encode(1))

    def judge(self) -> bool:
        """Renew, then send the heartbeat in the general way: after True that has the same answer, and no effect."""
        shard = _shard_of(self.context)
        before = None if shard is None else _deadlines(shard)
        if not self.renew():
            assert shard is None or _deadlines(shard) == before, "nothing has happened"
            return False
        assert shard is not None
        renewed = _deadlines(shard)
        assert self.general() == self.first
        assert _deadlines(shard) == renewed, "the sessions end as they do after a heartbeat in the general way"
        return True


def _shard_of(context: Context) -> GroupShard | None:
    return next(iter(context.coordinator.loaded_shards()), None)


def _deadlines(shard: GroupShard) -> dict[Hashable, float]:
    timers = shard.soft.timers
    assert isinstance(timers, LoopTimers)
    return timers.deadlines()


def classic(context: Context, member_id: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance)


def beat_of(consumer: Consumer) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=consumer.member_id,
        member_epoch=consumer.epoch,
        rebalance_timeout_ms=-1,
        subscribed_topic_names=None,
        topic_partitions=None,
    )


def test_a_renewed_session_ends_as_late_as_after_a_heartbeat() -> None:
    with Context() as context:
        (member,) = context.stable_group()
        sent = Sent(context, classic(context, member, 1))
        for _ in range(5):
            context.sleep(SESSION_MS - 1)
            assert sent.judge()
        context.sleep(SESSION_MS + 1)
        assert not sent.judge()
        assert context.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("event", ["leave", "join", "resign", "close", "count", "restart"])
def test_no_heartbeat_is_renewed_in_a_group_that_changed(event: str) -> None:
    with Context() as context:
        leader, follower = context.stable_group(2)
        sent = Sent(context, classic(context, leader, 1))
        assert sent.judge()
        match event:
            case "leave":
                context.leave(follower)
            case "join":
                context.new_member()
            case "resign":
                context.coordinator.on_resigned(0)
            case "close":
                context.coordinator.close()
            case "count":
                context.coordinator.on_partition_count(7)
            case _:
                context.restart()
        assert not sent.renew()


def test_a_static_member_whose_place_was_given_away_is_not_renewed() -> None:
    with Context() as context:
        (member,) = context.static_group(["i"])
        sent = Sent(context, classic(context, member, 1, "i"))
        assert sent.judge()
        context.join(instance="i")
        assert not sent.judge()


def test_a_heartbeat_that_fails_or_comes_during_a_rebalance_has_no_renewal() -> None:
    with Context() as context:
        (member,) = context.stable_group()
        renewal = context.coordinator.heartbeat_renewal
        assert renewal(classic(context, member, 2)) is None
        assert renewal(classic(context, "other", 1)) is None
        assert renewal(HeartbeatRequest(group_id="none", generation_id=1, member_id=member)) is None
        context.new_member()
        assert renewal(classic(context, member, 1)) is None
        context.coordinator.on_resigned(0)
        assert renewal(classic(context, member, 1)) is None


@pytest.mark.parametrize("event", ["join", "topics", "leave", "configs", "resign", "count", "classic", "delete"])
def test_no_heartbeat_is_renewed_in_a_consumer_group_that_changed(event: str) -> None:
    with ConsumerContext({"t": 4}) as context:
        first, second = context.consumer("m1"), context.consumer("m2")
        context.settle_group(first, second)
        sent = Sent(context, beat_of(first))
        assert sent.judge()
        match event:
            case "join":
                context.consumer("m3")
            case "topics":
                context.set_topic("t", 5)
            case "leave":
                second.leave()
            case "configs":
                context.configs.config = context.configs.config._replace(heartbeat_interval_ms=4_000)
            case "resign":
                context.coordinator.on_resigned(0)
            case "count":
                context.coordinator.on_partition_count(7)
            case "classic":
                context.served = context.admitted = False
                context.run(context.coordinator.end_consumer_groups())
            case _:
                first.leave()
        assert not sent.renew()


@pytest.mark.slow
def test_after_any_events_a_renewal_is_right() -> None:
    renewed = refused = 0
    for seed in range(12):
        random_ = random.Random(seed)
        with ConsumerContext({"t": 4, "u": 2}) as context:
            consumers: list[Consumer] = []
            sent: list[Sent] = []
            for _ in range(40):
                match random_.randrange(6):
                    case 0 if len(consumers) < 4:
                        topics = random_.choice([["t"], ["t", "u"]])
                        consumers.append(context.consumer(f"m{random_.randrange(10**6)}", topics))
                    case 1 if consumers and random_.random() < 0.3:
                        consumers.pop(random_.randrange(len(consumers))).leave()
                    case 2 if random_.random() < 0.2:
                        context.set_topic("u", context.topics.topics["u"].partition_count + 1)
                    case 3:
                        context.sleep(random_.choice([10, 4_000]))
                        for one in consumers:
                            one.beat()
                    case _:
                        for one in consumers:
                            one.beat()
                for one in consumers:
                    request = beat_of(one)
                    if context.coordinator.consumer_heartbeat_renewal(request, "client", "/127.0.0.1") is not None:
                        sent.append(Sent(context, request))
                sent = sent[-6:]
                for old in sent:
                    if old.judge():
                        renewed += 1
                    else:
                        refused += 1
    assert renewed > 100
    assert refused > 20
