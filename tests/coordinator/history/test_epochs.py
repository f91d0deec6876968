"""The history of consumer groups: each group epoch has its cause, its waits and the partitions that moved."""

from __future__ import annotations

from gregor.coordinator.history.rebalance import Outcome
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import DeleteGroupsRequest, RebalanceValue
from tests.coordinator.group.consumer.context import Consumer, ConsumerContext
from tests.coordinator.group.migration.test_conversion import given
from tests.coordinator.group.migration.test_conversions import ClassicConsumer, classic_group, context_of, settle
from tests.coordinator.history.facts import values_of

SESSION_MS = 45_000


class Facts:
    """Implements TopicFacts over the topics of the context."""

    def __init__(self, context: ConsumerContext) -> None:
        self._topics = context.topics

    def partition_count(self, topic: str) -> int:
        found = self._topics.find(topic)
        return 0 if found is None else found.partition_count

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._topics.name_of(topic_id)

    def created_ms(self, topic: str) -> int | None:
        return None


def history(context: ConsumerContext) -> list[RebalanceValue]:
    return values_of(context.history.ended, Facts(context))


def causes(value: RebalanceValue) -> list[tuple[str, str, str]]:
    return [(cause.trigger, cause.member_id, cause.detail) for cause in value.causes]


def two_members(context: ConsumerContext) -> tuple[Consumer, Consumer]:
    first = context.consumer("a", client_id="first")
    context.settle_group(first)
    second = context.consumer("b", client_id="second")
    context.settle_group(first, second)
    return first, second


def test_members_that_join() -> None:
    with ConsumerContext() as context:
        two_members(context)
        values = history(context)
        assert [(value.group_type, value.epoch, value.outcome, value.members_count) for value in values] == [
            ("consumer", 2, "assigned", 1),
            ("consumer", 3, "assigned", 2),
        ]
        assert [causes(value) for value in values] == [[("member joined", "a", "")], [("member joined", "b", "")]]
        assert values[1].causes[0].client_id == "second"
        assert values[1].causes[0].client_host == "/127.0.0.1"
        assert [(value.partitions, value.moved, value.added) for value in values] == [(4, 0, 4), (4, 2, 0)]
        assert {(move.topic, move.from_member, move.to_member) for move in values[1].moves} == {("t", "a", "b")}


def test_waits_and_time_without_owner() -> None:
    with ConsumerContext() as context:
        first = context.consumer("a")
        context.settle_group(first)
        second = context.consumer("b")
        context.sleep(1_000)
        first.beat()
        context.sleep(1_000)
        first.beat()
        context.sleep(500)
        context.settle_group(first, second)
        value = history(context)[1]
        assert [(one.member_id, one.waited_ms) for one in value.members] == [("b", 2_500), ("a", 2_000)]
        assert (value.without_owner, value.without_owner_ms) == (2, 500)
        assert value.ended_ms - value.began_ms == 2_500


def test_member_that_leaves() -> None:
    with ConsumerContext() as context:
        first, second = two_members(context)
        second.leave()
        context.sleep(100)
        context.settle_group(first)
        value = history(context)[2]
        assert causes(value) == [("member left", "b", "")]
        assert (value.moved, value.without_owner, value.without_owner_ms) == (2, 2, 100)
        assert [(one.member_id, one.joined) for one in value.members] == [("a", True), ("b", False)]


def test_session_that_ends() -> None:
    with ConsumerContext() as context:
        first, _ = two_members(context)
        context.sleep(SESSION_MS // 2)
        first.beat()
        context.sleep(SESSION_MS // 2 + 10)
        context.settle_group(first)
        assert causes(history(context)[2]) == [("session timeout", "b", "")]


def test_member_that_does_not_revoke_in_time() -> None:
    with ConsumerContext() as context:
        first = context.consumer("a", rebalance_ms=5_000)
        context.settle_group(first)
        second = context.consumer("b")
        first.beat()
        context.sleep(5_001)
        context.settle_group(second)
        values = history(context)
        assert [value.outcome for value in values] == ["assigned", "superseded", "assigned"]
        assert causes(values[2]) == [("rebalance timeout", "a", "after 5000 ms")]
        assert (values[2].partitions, values[2].moved) == (4, 4)


def test_last_member_that_leaves() -> None:
    with ConsumerContext() as context:
        first = context.consumer("a")
        context.settle_group(first)
        first.leave()
        value = history(context)[1]
        assert (value.outcome, value.members_count, value.removed, causes(value)) == (
            *("empty", 0, 4),
            [("member left", "a", "")],
        )
        context.sleep(3_000)
        again = context.consumer("b")
        context.settle_group(again)
        assert history(context)[2].without_owner_ms == 3_000


def test_partitions_and_topics_that_are_added() -> None:
    with ConsumerContext() as context:
        first = context.consumer("a", topics=["t", "u"])
        context.settle_group(first)
        context.set_topic("t", 6)
        context.settle_group(first)
        context.set_topic("u", 1)
        context.settle_group(first)
        context.delete_topic("u")
        context.settle_group(first)
        # The rebalances become records about a second later, when the topics are as they were for the coordinator.
        assert [value.causes[0].trigger for value in history(context)[1:]] == ["topics changed"] * 3


def test_topics_behind_an_epoch_are_named() -> None:
    with ConsumerContext({"t": 4, "u": 1}) as context:
        first = context.consumer("a", topics=["t", "u", "v"])
        context.settle_group(first)
        context.set_topic("t", 6)
        context.settle_group(first)
        assert history(context)[1].causes[0].detail == "t has 6 partitions, not 4"
        context.set_topic("v", 1)
        context.settle_group(first)
        assert history(context)[2].causes[0].detail == "v was added"
        context.delete_topic("u")
        context.settle_group(first)
        assert len(history(context)) == 4


def test_changed_subscription() -> None:
    with ConsumerContext({"t": 2, "u": 2}) as context:
        first = context.consumer("a")
        context.settle_group(first)
        context.beat("a", first.epoch, topics=["t", "u"])
        context.settle_group(first)
        value = history(context)[1]
        assert causes(value) == [("subscription changed", "a", "u added")]
        assert value.added == 2


def test_topics_of_a_regular_expression() -> None:
    with ConsumerContext({"t1": 2}) as context:
        first = context.consumer("a", topics=None, regex="t.*")
        context.settle_group(first)
        context.sleep(10_001)
        context.set_topic("t2", 1)
        context.settle_group(first)
        context.settle_group(first)
        values = history(context)
        assert causes(values[0]) == [("member joined", "a", "")]
        assert causes(values[-1]) == [("topics changed", "", "t2 was added")]


def test_static_member_that_is_replaced_begins_no_epoch_and_is_no_later_cause() -> None:
    with ConsumerContext() as context:
        first = context.consumer("a", instance="i")
        context.settle_group(first)
        first.leave(epoch=-2)
        again = context.consumer("a2", instance="i")
        context.settle_group(again)
        assert len(history(context)) == 1
        context.sleep(10)
        second = context.consumer("b")
        context.settle_group(again, second)
        value = history(context)[1]
        assert causes(value) == [("member joined", "b", "")]
        assert (value.moved, value.removed) == (2, 0)


def test_epoch_that_begins_before_the_last_one_ended() -> None:
    with ConsumerContext() as context:
        first = context.consumer("a")
        second = context.consumer("b")
        third = context.consumer("c")
        context.settle_group(first, second, third)
        values = history(context)
        assert [(value.epoch, value.outcome) for value in values] == [
            (2, "assigned"),
            (3, "superseded"),
            (4, "assigned"),
        ]
        assert values[2].partitions == 4


def test_nothing_is_observed_while_the_log_is_loaded() -> None:
    with ConsumerContext() as context:
        two_members(context)
        count = len(context.history.ended)
        context.restart()
        assert len(context.history.ended) == count


def test_deletion_and_conversion() -> None:
    with ConsumerContext() as context:
        first = context.consumer("a")
        context.settle_group(first)
        first.leave()
        (member_id, _) = context.new_member()
        assert context.history.forgotten == []
        context.sleep(3_000)
        context.leave(member_id)
        results = context.run(context.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), 2)).results
        assert results[0].error_code == ErrorCode.NONE
        assert [group for group, _ in context.history.forgotten] == ["g"]


def test_deletion_of_a_consumer_group() -> None:
    with ConsumerContext() as context:
        first = context.consumer("a")
        context.settle_group(first)
        first.leave()
        context.run(context.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), 2))
        assert context.history.forgotten == [("g", 3)]
        assert context.history.ended[-1].outcome is Outcome.EMPTY


def test_group_that_becomes_a_consumer_group_and_a_classic_one_again() -> None:
    with context_of() as context:
        (classic_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}])
        old = ClassicConsumer(context, classic_id, 1, {"orders": [0, 1, 2, 3]})
        new = Consumer(context, "new", ["orders"])
        settle(old, new)
        new.leave()
        generation = old.join().response.generation_id
        context.sync(classic_id, generation, {classic_id: given({"orders": [0, 1, 2, 3]})})
        values = history(context)
        assert [(value.group_type, value.epoch, value.outcome) for value in values] == [
            ("classic", 1, "assigned"),
            ("consumer", 2, "assigned"),
            ("classic", 3, "assigned"),
        ]
        assert causes(values[1]) == [
            ("member joined", "new", ""),
            ("group protocol changed", "", "classic to consumer"),
        ]
        assert (values[1].members_count, values[1].moved) == (2, 2)
        assert values[2].causes[0].trigger == "group protocol changed"
        assert context.history.forgotten == []


def test_empty_classic_group_that_becomes_a_consumer_group() -> None:
    with context_of() as context:
        (classic_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}])
        context.leave(classic_id)
        new = context.consumer("new", ["orders"])
        context.settle_group(new)
        values = history(context)
        assert [(value.group_type, value.epoch) for value in values] == [
            ("classic", 1),
            ("classic", 2),
            ("consumer", 2),
        ]
        assert [trigger for trigger, _, _ in causes(values[2])] == ["member joined", "group protocol changed"]
