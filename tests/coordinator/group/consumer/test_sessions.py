"""The timers of members: sessions and the time to revoke partitions."""

from gregor.coordinator.group.consumer.member import rebalance_key, session_key
from gregor.coordinator.group.consumer.reconciliation import MemberState
from gregor.protocol.errors import ErrorCode
from tests.coordinator.group.consumer.context import ConsumerContext


def test_member_without_heartbeats_is_removed_when_its_session_ends() -> None:
    with ConsumerContext({"t": 2}) as context:
        first, second = context.consumer("m1"), context.consumer("m2")
        context.settle_group(first, second)
        for _ in range(5):
            context.sleep(9_000)
            second.beat()
        context.settle_group(second)
        assert list(context.found().members) == ["m2"]
        assert second.owned == {"t": [0, 1]}
        assert first.beat() is False
        assert first.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_session() -> None:
    with ConsumerContext() as context:
        member = context.consumer("m1")
        for _ in range(10):
            context.sleep(44_000)
            member.beat()
            assert member.error is ErrorCode.NONE


def test_heartbeat_that_is_refused_does_not_keep_a_session() -> None:
    with ConsumerContext() as context:
        context.consumer("m1")
        for _ in range(5):
            context.sleep(9_000)
            context.beat_error("m1", 9)
        assert context.found().members == {}


def test_session_of_each_group_has_the_timeout_of_its_settings() -> None:
    with ConsumerContext() as context:
        context.configs.config = context.configs.config._replace(session_timeout_ms=50_000)
        context.consumer("m1")
        context.sleep(49_000)
        assert list(context.found().members) == ["m1"]
        context.sleep(2_000)
        assert context.found().members == {}


def test_member_that_does_not_revoke_in_time_is_removed() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1", rebalance_ms=10_000)
        second = context.consumer("m2")
        context.beat("m1", first.epoch)
        assert context.found().members["m1"].assignment.state is MemberState.UNREVOKED_PARTITIONS
        assert rebalance_key("g", "m1") in context.timers()
        context.sleep(9_000)
        context.beat("m1", first.epoch)
        assert "m1" in context.found().members, "heartbeats do not extend it"
        context.sleep(2_000)
        assert list(context.found().members) == ["m2"]
        context.settle_group(second)
        assert second.owned == {"t": [0, 1]}


def test_member_that_revokes_in_time_stays() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1", rebalance_ms=10_000)
        second = context.consumer("m2")
        context.settle_group(first, second)
        assert rebalance_key("g", "m1") not in context.timers()
        context.sleep(11_000)
        assert sorted(context.found().members) == ["m1", "m2"]


def test_timers_begin_anew_after_a_restart() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1", rebalance_ms=10_000)
        context.consumer("m2")
        context.beat("m1", first.epoch)
        context.sleep(8_000)
        context.restart()
        assert {session_key("g", "m1"), session_key("g", "m2"), rebalance_key("g", "m1")} <= context.timers()
        context.sleep(8_000)
        assert "m1" in context.found().members
        context.sleep(3_000)
        assert "m1" not in context.found().members


def test_removal_that_cannot_be_written_is_tried_again() -> None:
    with ConsumerContext() as context:
        context.consumer("m1")
        context.sleep(44_000)
        context.fail()
        context.fail()
        context.sleep(1_200)
        assert list(context.found().members) == ["m1"]
        context.sleep(1_000)
        assert context.found().members == {}


def test_group_without_members_has_no_timers() -> None:
    with ConsumerContext({"t": 2}) as context:
        first, second = context.consumer("m1"), context.consumer("m2")
        context.beat("m1", first.epoch)
        first.leave()
        second.leave()
        assert context.timers() == {("expiry",)}
