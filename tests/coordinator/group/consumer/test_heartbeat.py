"""Heartbeats of consumer groups, with a log in memory and a clock that moves on command."""

from gregor.coordinator.group.consumer.group import ConsumerGroupState
from gregor.protocol.errors import ErrorCode
from tests.coordinator.group.consumer.context import ConsumerContext


def test_first_member_gets_all_partitions_in_epoch_2() -> None:
    with ConsumerContext({"t": 3}) as context:
        response = context.join_new("m1")
        assert response.member_id == "m1"
        assert response.member_epoch == 2
        assert response.heartbeat_interval_ms == 5_000
        assert response.assignment is not None
        assert context.named(response.assignment.topic_partitions) == {"t": [0, 1, 2]}
        assert context.found().state is ConsumerGroupState.STABLE


def test_partitions_move_to_a_second_member_only_after_they_are_revoked() -> None:
    with ConsumerContext({"t": 4}) as context:
        first = context.consumer("m1")
        second = context.consumer("m2")
        assert second.epoch == 3
        assert second.owned == {}
        first.beat()
        assert len(first.owned["t"]) == 2
        second.beat()
        assert second.owned == {}, "the first member has not confirmed yet"
        first.beat()
        assert first.epoch == 3
        second.beat()
        assert sorted(first.owned["t"] + second.owned["t"]) == [0, 1, 2, 3]


def test_heartbeat_that_changes_nothing_writes_nothing() -> None:
    with ConsumerContext() as context:
        member = context.consumer("m1")
        context.settle_group(member)
        appends = context.log.appends
        response = context.beat("m1", member.epoch).response
        assert response.error_code == ErrorCode.NONE
        assert response.assignment is None
        assert context.log.appends == appends
