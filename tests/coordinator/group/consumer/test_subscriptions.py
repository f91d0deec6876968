"""Topics that change, and regular expressions of topic names."""

import asyncio

from gregor.protocol.errors import ErrorCode
from tests.coordinator.group.consumer.context import ConsumerContext


def test_more_partitions_begin_a_new_epoch_at_the_next_heartbeat() -> None:
    with ConsumerContext({"t": 2}) as context:
        member = context.consumer("m1")
        context.settle_group(member)
        context.set_topic("t", 3)
        assert context.found().epoch == 2
        context.settle_group(member)
        assert context.found().epoch == 3
        assert member.owned == {"t": [0, 1, 2]}


def test_topic_of_another_group_changes_nothing() -> None:
    with ConsumerContext({"t": 2, "other": 1}) as context:
        member = context.consumer("m1")
        context.settle_group(member)
        appends = context.log.appends
        context.set_topic("other", 5)
        context.set_topic("new", 5)
        member.beat()
        assert context.log.appends == appends


def test_topic_that_is_deleted_is_revoked() -> None:
    with ConsumerContext({"a": 1, "b": 1}) as context:
        member = context.consumer("m1", ["a", "b"])
        context.settle_group(member)
        context.delete_topic("b")
        response = context.beat("m1", member.epoch, owned={"a": [0]}).response
        assert response.assignment is not None
        assert context.named(response.assignment.topic_partitions) == {"a": [0]}
        assert context.found().epoch == 3


def test_racks_that_change_begin_a_new_epoch() -> None:
    with ConsumerContext({"t": 1}) as context:
        member = context.consumer("m1")
        context.settle_group(member)
        context.set_topic("t", 1, (("r1",),))
        context.settle_group(member)
        assert context.found().epoch == 3


def test_topics_are_compared_every_ten_minutes_though_no_change_was_announced() -> None:
    with ConsumerContext({"t": 1}) as context:
        member = context.consumer("m1")
        context.settle_group(member)
        context.topics.set("t", 2)
        context.shard.consumers.on_topics_changed(frozenset({"unrelated"}), are_new=False)
        for _ in range(16):
            context.sleep(40_000)
            member.beat()
        assert context.found().epoch == 2, "the hash of the topic is remembered until it is announced"


# --- regular expressions


def test_member_with_an_expression_gets_the_topics_that_match() -> None:
    with ConsumerContext({"orders.eu": 1, "orders.us": 1, "payments": 1}) as context:
        member = context.consumer("m1", None, regex="orders.*")
        assert member.owned == {}
        context.settle_group(member)
        context.sleep(1)
        context.settle_group(member)
        assert member.owned == {"orders.eu": [0], "orders.us": [0]}


def test_new_topic_that_matches_is_assigned() -> None:
    with ConsumerContext({"a1": 1}) as context:
        member = context.consumer("m1", None, regex="a.*")
        context.settle_group(member)
        context.settle_group(member)
        assert member.owned == {"a1": [0]}
        context.set_topic("a2", 1)
        context.set_topic("b", 1)
        context.settle_group(member)
        assert member.owned == {"a1": [0]}, "expressions are matched again after ten seconds"
        context.sleep(10_001)
        context.settle_group(member)
        context.settle_group(member)
        assert member.owned == {"a1": [0], "a2": [0]}


def test_invalid_expression_is_refused() -> None:
    with ConsumerContext() as context:
        error = context.beat_error("m1", 0, regex="(", rebalance_ms=1, owned={})
        assert error is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert context.log.appends == 0


def test_topics_that_the_member_may_not_describe_do_not_match() -> None:
    with ConsumerContext({"a1": 1, "a2": 1}) as context:
        member = context.consumer("m1", None, regex="a.*", visible=lambda names: [n for n in names if n != "a2"])
        context.settle_group(member)
        context.settle_group(member)
        assert member.owned == {"a1": [0]}


def test_member_may_subscribe_by_name_and_expression() -> None:
    with ConsumerContext({"a": 1, "b": 1}) as context:
        member = context.consumer("m1", ["a"], regex="b")
        context.settle_group(member)
        context.settle_group(member)
        assert member.owned == {"a": [0], "b": [0]}


def test_expression_that_is_known_rebalances_at_once() -> None:
    with ConsumerContext({"a": 2}) as context:
        first = context.consumer("m1", None, regex="a")
        context.settle_group(first)
        context.settle_group(first)
        second = context.consumer("m2", None, regex="a")
        assert second.epoch == context.found().epoch
        context.settle_group(first, second)
        assert (len(first.owned["a"]), len(second.owned["a"])) == (1, 1)


def test_expression_of_the_last_member_that_leaves_is_removed() -> None:
    with ConsumerContext({"a": 1}) as context:
        member = context.consumer("m1", None, regex="a")
        context.settle_group(member)
        assert list(context.found().resolved) == ["a"]
        member.leave()
        assert context.found().resolved == {}
        assert context.found().metadata_hash == 0


def test_member_that_changes_its_expression_gets_other_topics() -> None:
    with ConsumerContext({"a": 1, "b": 1}) as context:
        member = context.consumer("m1", None, regex="a")
        context.settle_group(member)
        context.settle_group(member)
        context.sleep(10_001)
        epoch = context.beat("m1", member.epoch, regex="b", owned=member.owned).response.member_epoch
        member.epoch = context.beat("m1", epoch, owned={}).response.member_epoch
        context.settle_group(member)
        context.settle_group(member)
        assert context.named_assignment("m1") == {"b": [0]}
        assert list(context.found().resolved) == ["b"]


def test_member_that_gives_its_expression_up_loses_its_topics() -> None:
    with ConsumerContext({"a": 1, "b": 1}) as context:
        member = context.consumer("m1", None, regex="a")
        context.settle_group(member)
        context.settle_group(member)
        context.beat("m1", member.epoch, regex="", topics=["b"], owned={})
        context.settle_group(member)
        assert context.named_assignment("m1") == {"b": [0]}
        assert context.found().resolved == {}


def test_matching_that_ends_after_the_coordinator_moved_is_dropped() -> None:
    with ConsumerContext({"a": 1}) as context:
        held = context.gate.held = asyncio.Event()
        context.consumer("m1", None, regex="a")
        context.gate.held = None
        context.restart()
        held.set()
        context.settle()
        assert context.found().resolved == {}
        member = context.beat("m1", 1)
        assert member.error is ErrorCode.NONE
        context.settle()
        assert context.found().resolved["a"].topics == {"a"}


def test_expressions_are_matched_again_in_the_refresh_interval() -> None:
    with ConsumerContext({"a": 1}) as context:
        member = context.consumer("m1", None, regex="a.*")
        context.settle_group(member)
        context.topics.set("a2", 1)
        for _ in range(16):
            context.sleep(40_000)
            member.beat()
        context.settle_group(member)
        assert member.owned == {"a": [0], "a2": [0]}
