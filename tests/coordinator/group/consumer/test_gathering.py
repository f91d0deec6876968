"""Members that join at the same time get one target assignment, which is computed for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.coordinator.group.consumer import targets
from gregor.coordinator.group.consumer.config import ConsumerGroupSettings
from gregor.coordinator.group.consumer.group import ConsumerGroupState
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ConsumerGroupHeartbeatResponse
from tests.coordinator.group.consumer.context import ConsumerContext, plain
from tests.coordinator.machinery import Call

GATHER_MS = 5
JOIN: dict[str, Any] = {"topics": ["t"], "rebalance_ms": 60_000, "owned": {}}


def make(partitions: int = 6, **options: Any) -> ConsumerContext:
    return ConsumerContext({"t": partitions}, settings=ConsumerGroupSettings(gather_ms=GATHER_MS), **options)


def join_together(context: ConsumerContext, count: int = 3) -> list[Call[ConsumerGroupHeartbeatResponse]]:
    return [context.beat(f"m{number}", 0, **JOIN) for number in range(count)]


def partitions_of(context: ConsumerContext, *joins: Call[ConsumerGroupHeartbeatResponse]) -> list[int]:
    found: list[int] = []
    for join in joins:
        assert join.response.assignment is not None
        found += context.named(join.response.assignment.topic_partitions)["t"]
    return found


def test_members_that_join_together_have_their_partitions_with_the_first_answer() -> None:
    with make() as context:
        joins = join_together(context)
        assert not any(join.done for join in joins)
        context.sleep(GATHER_MS)
        assert [join.response.member_epoch for join in joins] == [4, 4, 4]
        assert [len(partitions_of(context, join)) for join in joins] == [2, 2, 2]
        assert sorted(partitions_of(context, *joins)) == [0, 1, 2, 3, 4, 5]
        assert context.found().state is ConsumerGroupState.STABLE
        before = plain(context.found())
        context.restart()
        assert plain(context.found()) == before


def test_a_later_member_waits_for_its_own_assignment() -> None:
    with make() as context:
        (first,) = join_together(context, 1)
        context.sleep(GATHER_MS)
        assert first.response.member_epoch == 2
        second = context.beat("m1", 0, **JOIN)
        assert context.beat("m0", 2).response.member_epoch == 2, "others are answered meanwhile"
        assert not second.done
        context.sleep(GATHER_MS)
        assert second.response.member_epoch == 3
        assert partitions_of(context, first) == [0, 1, 2, 3, 4, 5]
        assert second.response.assignment is not None
        assert context.named(second.response.assignment.topic_partitions) == {}, "the first one still owns them"


def test_a_member_that_repeats_its_join_gets_the_same_answer() -> None:
    with make() as context:
        first = context.beat("m0", 0, **JOIN)
        again = context.beat("m0", 0, **JOIN)
        context.sleep(GATHER_MS)
        assert partitions_of(context, first) == partitions_of(context, again) == [0, 1, 2, 3, 4, 5]
        assert len(context.found().members) == 1


def test_a_member_that_changes_its_subscription_does_not_wait_for_those_that_join() -> None:
    with make() as context:
        (first,) = join_together(context, 1)
        context.sleep(GATHER_MS)
        second = context.beat("m1", 0, **JOIN)
        assert not second.done
        changed = context.beat("m0", 2, topics=["t", "u"])
        assert changed.response.member_epoch == first.response.member_epoch
        assert changed.response.assignment is not None, "the target has half of the partitions for the other member"
        assert len(partitions_of(context, changed)) == 3
        context.sleep(GATHER_MS)
        assert second.response.member_epoch == 4


def test_members_are_answered_when_their_assignments_are_committed() -> None:
    with make() as context:
        context.hold()
        joins = join_together(context)
        context.sleep(GATHER_MS)
        assert not any(join.done for join in joins)
        context.commit()
        assert sorted(partitions_of(context, *joins)) == [0, 1, 2, 3, 4, 5]


def test_a_join_that_could_not_be_written_fails_alone() -> None:
    with make() as context:
        context.fail()
        failed = context.beat("m0", 0, **JOIN)
        assert failed.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        joined = context.beat("m1", 0, **JOIN)
        context.sleep(GATHER_MS)
        assert partitions_of(context, joined) == [0, 1, 2, 3, 4, 5]
        assert list(context.found().members) == ["m1"]


def test_after_an_assignment_that_could_not_be_written_members_join_again() -> None:
    with make() as context:
        joins = join_together(context)
        for _ in joins:
            context.fail()
        context.sleep(GATHER_MS)
        assert {join.error for join in joins} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        joins = join_together(context)
        context.sleep(GATHER_MS)
        assert sorted(partitions_of(context, *joins)) == [0, 1, 2, 3, 4, 5]
        before = plain(context.found())
        context.restart()
        assert plain(context.found()) == before


def test_a_member_that_leaves_while_it_waits_gets_nothing() -> None:
    with make() as context:
        joins = join_together(context)
        assert context.beat("m0", -1).response.error_code == ErrorCode.NONE
        context.sleep(GATHER_MS)
        assert joins[0].error is ErrorCode.UNKNOWN_MEMBER_ID
        assert sorted(partitions_of(context, *joins[1:])) == [0, 1, 2, 3, 4, 5]


def test_another_coordinator_serves_those_who_waited() -> None:
    with make() as context:
        joins = join_together(context)
        context.restart()
        assert {join.error for join in joins} == {ErrorCode.NOT_COORDINATOR}
        again = join_together(context)
        context.sleep(GATHER_MS)
        assert sorted(partitions_of(context, *again)) == [0, 1, 2, 3, 4, 5]


def test_a_large_assignment_is_computed_in_turns_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "MAX_SIZE_AT_ONCE", 0)
    with make() as context:
        joins = join_together(context)
        context.sleep(GATHER_MS)
        context.settle()
        assert sorted(partitions_of(context, *joins)) == [0, 1, 2, 3, 4, 5]


def test_within_the_interval_of_assignments_nobody_waits() -> None:
    with make(assignment_interval_ms=1_000) as context:
        (first,) = join_together(context, 1)
        context.sleep(GATHER_MS)
        assert first.response.member_epoch == 2
        second = context.beat("m1", 0, **JOIN)
        assert second.response.member_epoch == 2
        context.sleep(1_000)
        assert context.beat("m1", 2).response.member_epoch == 3
