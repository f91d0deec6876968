"""Target assignments that are installed in parts."""

import pytest

from gregor.coordinator.group.consumer import targets
from gregor.protocol.errors import ErrorCode
from tests.coordinator.group.consumer.context import ConsumerContext, Partitions


@pytest.fixture(autouse=True)
def one_member_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "MAX_MEMBERS_AT_ONCE", 1)


def target(context: ConsumerContext, member_id: str) -> Partitions:
    names = {topic.topic_id: name for name, topic in context.topics.topics.items()}
    return {names[topic_id]: sorted(indexes) for topic_id, indexes in context.found().target_of(member_id).items()}


def test_epoch_of_the_target_is_written_after_its_last_part() -> None:
    with ConsumerContext({"t": 4}) as context:
        first, second = context.consumer("m1"), context.consumer("m2")
        context.settle_group(first, second)
        assert (context.found().target_epoch, context.found().epoch) == (3, 3)
        assert sorted(target(context, "m1")["t"] + target(context, "m2")["t"]) == [0, 1, 2, 3]
        assert context.hard_state() == context.replayed_state()


def test_part_that_cannot_be_written_leaves_the_rest_for_the_next_assignment() -> None:
    with ConsumerContext({"t": 4}) as context:
        first = context.consumer("m1")
        context.settle_group(first)
        append, appends = context.log.append, 0

        def append_some(*given: object) -> int:
            nonlocal appends
            appends += 1
            if appends == 3:  # the join, the first part, the second part
                context.fail()
            return append(*given)  # type: ignore[arg-type]

        context.log.append = append_some  # type: ignore[method-assign]
        joined = context.beat("m2", 0, topics=["t"], rebalance_ms=60_000, owned={})
        context.settle()
        assert joined.error is ErrorCode.NONE
        assert joined.response.member_epoch == 2, "the epoch of the target before"
        assert (context.found().target_epoch, context.found().epoch) == (2, 3)
        context.log.append = append  # type: ignore[method-assign]
        second = context.consumer("m2")
        context.settle_group(first, second)
        context.settle_group(first, second)
        assert (len(first.owned["t"]), len(second.owned["t"])) == (2, 2)
        assert set(first.owned["t"]).isdisjoint(second.owned["t"])


def test_partition_in_the_targets_of_two_members_is_that_of_one() -> None:
    topic_id = bytes(16)
    known: dict[bytes, set[int]] = {}
    assert targets.without_known({topic_id: frozenset({0, 1})}, known) == {topic_id: frozenset({0, 1})}
    assert targets.without_known({topic_id: frozenset({1, 2})}, known) == {topic_id: frozenset({2})}
    assert targets.without_known({topic_id: frozenset({0})}, known) == {}
    assert known == {topic_id: {0, 1, 2}}
