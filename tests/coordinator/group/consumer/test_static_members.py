"""Static members of consumer groups (KIP-345 with KIP-848)."""

from gregor.coordinator.group.consumer.group import ConsumerGroupState
from gregor.coordinator.group.consumer.reconciliation import MemberState
from gregor.protocol.errors import ErrorCode
from tests.coordinator.group.consumer.context import ConsumerContext

AWAY = -2


def test_static_member_that_returns_gets_its_partitions_without_a_rebalance() -> None:
    with ConsumerContext({"t": 4}) as context:
        first = context.consumer("m1", instance="i1")
        second = context.consumer("m2", instance="i2")
        context.settle_group(first, second)
        epoch = context.found().epoch
        assert first.leave(AWAY) is ErrorCode.NONE
        assert context.found().members["m1"].epoch == AWAY
        back = context.consumer("m3", instance="i1")
        assert (back.epoch, back.owned) == (epoch, first.owned)
        assert context.found().epoch == epoch
        assert sorted(context.found().members) == ["m2", "m3"]
        assert context.found().state is ConsumerGroupState.STABLE
        second.beat()
        assert second.epoch == epoch


def test_member_that_the_returned_one_replaced_is_fenced() -> None:
    with ConsumerContext() as context:
        first = context.consumer("m1", instance="i1")
        first.leave(AWAY)
        context.consumer("m2", instance="i1")
        assert context.beat_error("m1", 2, instance="i1") is ErrorCode.FENCED_INSTANCE_ID
        assert context.beat_error("m1", -1, instance="i1") is ErrorCode.FENCED_INSTANCE_ID
        assert context.beat_error("m1", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_instance_that_is_in_use_is_not_released() -> None:
    with ConsumerContext() as context:
        context.consumer("m1", instance="i1")
        second = context.consumer("m2", instance="i1")
        assert second.error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_instance_that_is_unknown_is_refused() -> None:
    with ConsumerContext() as context:
        context.consumer("m1", instance="i1")
        assert context.beat_error("m1", 2, instance="i2") is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.beat_error("m1", -2, instance="i2") is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_that_returns_with_another_subscription_causes_a_rebalance() -> None:
    with ConsumerContext({"a": 1, "b": 1}) as context:
        first = context.consumer("m1", ["a"], instance="i1")
        first.leave(AWAY)
        epoch = context.found().epoch
        back = context.consumer("m2", ["b"], instance="i1")
        context.settle_group(back)
        assert context.found().epoch == epoch + 1
        assert back.owned == {"b": [0]}


def test_session_of_a_static_member_that_stays_away_ends() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1", instance="i1")
        second = context.consumer("m2", instance="i2")
        context.settle_group(first, second)
        first.leave(AWAY)
        for _ in range(6):
            context.sleep(9_000)
            second.beat()
        context.settle_group(second)
        assert list(context.found().members) == ["m2"]
        assert context.found().static_members == {"i2": "m2"}
        assert second.owned == {"t": [0, 1]}


def test_static_member_that_leaves_for_good_is_removed() -> None:
    with ConsumerContext() as context:
        first = context.consumer("m1", instance="i1")
        assert first.leave() is ErrorCode.NONE
        assert context.found().members == {}
        assert context.found().static_members == {}


def test_static_member_that_returns_while_another_revokes_waits_for_it() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1")
        second = context.consumer("m2", instance="i2")
        second.leave(AWAY)
        back = context.consumer("m3", instance="i2")
        assert back.owned == {}
        context.settle_group(first, back)
        assert (len(first.owned["t"]), len(back.owned["t"])) == (1, 1)


def test_state_of_a_static_member_that_is_away_survives_a_restart() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1", instance="i1")
        first.leave(AWAY)
        context.restart()
        back = context.consumer("m2", instance="i1")
        assert back.owned == {"t": [0, 1]}
        assert context.found().epoch == 2


def test_a_member_that_left_for_a_while_need_not_revoke_partitions_in_time() -> None:
    with ConsumerContext() as context:
        first = context.consumer("m1", instance="i1", rebalance_ms=3_000)
        second = context.consumer("m2")
        first.beat()
        assert context.found().members["m1"].assignment.state is MemberState.UNREVOKED_PARTITIONS
        assert first.leave(-2) == ErrorCode.NONE
        context.sleep(2 * 3_000)
        second.beat()
        away = context.found().members["m1"]
        assert away.epoch == -2
        # Partitions to revoke are free now, and those that the next instance keeps have no later epoch than it.
        assert not away.assignment.pending_revocation
        assert {epoch for partitions in away.assignment.assigned.values() for epoch in partitions.values()} == {0}
        context.sleep(45_000 - 2 * 3_000 - 1000)
        assert "m1" in context.found().members
        context.sleep(2000)
        assert "m1" not in context.found().members
