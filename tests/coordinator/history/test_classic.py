"""The history of classic groups: each cause is named, with its member, as the coordinator saw it."""

import gc
from collections.abc import Sequence

from gregor.coordinator.group.states import GroupState
from gregor.coordinator.history.causes import Trigger
from gregor.coordinator.history.rebalance import MAX_CAUSES, Outcome, Rebalance
from gregor.coordinator.history.summary import Summaries
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteGroupsRequest, JoinGroupResponse, RebalanceValue
from tests.coordinator.context import Call, Context
from tests.coordinator.history.facts import Topics, values_of
from tests.coordinator.history.messages_of_consumers import assignment, subscription

DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def history(context: Context, topics: Topics | None = None) -> list[RebalanceValue]:
    return values_of(context.history.ended, topics)


def triggers(value: RebalanceValue) -> list[str]:
    return [cause.trigger for cause in value.causes]


def rejoin(context: Context, ids: Sequence[str], generation: int) -> list[Call[JoinGroupResponse]]:
    """All members join again, and get assignments."""
    joins = [context.join(member_id) for member_id in ids]
    context.sync_all(ids, generation)
    return joins


def test_first_generation() -> None:
    with Context() as context:
        first, second = context.stable_group(2)
        (value,) = history(context)
        assert (value.group_type, value.epoch, value.outcome, value.protocol_type) == (
            *("classic", 1, "assigned", "consumer"),
        )
        assert triggers(value) == ["member joined"] * 2
        cause = value.causes[0]
        assert (cause.member_id, cause.client_id, cause.client_host, cause.reason) == (
            *(first, "client", "/127.0.0.1", None),
        )
        assert value.members_count == 2
        assert {member.member_id for member in value.members} == {first, second}
        assert value.joined_ms - value.began_ms == 2 * DELAY_MS


def test_new_member_and_how_long_the_others_were_waited_for() -> None:
    with Context() as context:
        (first,) = context.stable_group(1)
        second, _ = context.new_member(client_id="late", reason="need more hands")
        context.sleep(700)
        context.join(first)
        context.sync_all([first, second], 2)
        value = history(context)[1]
        assert triggers(value) == ["member joined"]
        assert (value.causes[0].client_id, value.causes[0].reason) == ("late", "need more hands")
        assert [(one.member_id, one.waited_ms, one.joined) for one in value.members] == [
            (first, 700, True),
            (second, 0, True),
        ]
        assert value.ended_ms - value.began_ms == 700


def test_member_that_leaves_with_a_reason() -> None:
    with Context() as context:
        first, second = context.stable_group(2)
        context.leave(second)
        rejoin(context, [first], 2)
        value = history(context)[1]
        assert [(cause.trigger, cause.member_id) for cause in value.causes] == [("member left", second)]
        assert [(one.member_id, one.joined) for one in value.members] == [(first, True), (second, False)]


def test_session_that_ended() -> None:
    with Context() as context:
        first, second = context.stable_group(2)
        context.sleep(SESSION_MS // 2)
        context.heartbeat(first, 1)
        context.sleep(SESSION_MS // 2 + 1)
        rejoin(context, [first], 2)
        value = history(context)[1]
        assert [(cause.trigger, cause.member_id, cause.detail) for cause in value.causes] == [
            ("session timeout", second, f"after {SESSION_MS} ms")
        ]


def test_member_that_does_not_rejoin_in_time_is_a_further_cause() -> None:
    with Context() as context:
        first, second = context.stable_group(2, session_ms=200_000)
        third, _ = context.new_member(session_ms=200_000)
        context.join(first, session_ms=200_000)
        context.sleep(REBALANCE_MS)
        context.sync_all([first, third], 2)
        value = history(context)[1]
        assert [(cause.trigger, cause.member_id) for cause in value.causes] == [
            ("member joined", third),
            ("rebalance timeout", second),
        ]
        longest = value.members[0]
        assert (longest.member_id, longest.waited_ms, longest.joined) == (second, REBALANCE_MS, False)


def test_members_that_do_not_fetch_their_assignment() -> None:
    with Context() as context:
        first, second = context.stable_group(2, session_ms=200_000)
        context.join(first, session_ms=200_000)
        context.join(second, session_ms=200_000)
        context.sync(first, 2, {first: b"1", second: b"2"})
        context.sleep(REBALANCE_MS)
        context.join(first, session_ms=200_000)
        context.sync_all([first], 3)
        values = history(context)
        assert [(value.epoch, value.outcome) for value in values] == [(1, "assigned"), (2, "assigned"), (3, "assigned")]
        assert [(cause.trigger, cause.member_id) for cause in values[2].causes] == [("sync timeout", second)]


def test_rebalance_before_there_is_an_assignment_supersedes_the_generation() -> None:
    with Context() as context:
        (first,) = context.stable_group(1)
        second, _ = context.new_member()
        context.join(first)
        third, _ = context.new_member()
        context.join(first)
        context.join(second)
        context.sync_all([first, second, third], 3)
        values = history(context)[1:]
        assert [(value.epoch, value.outcome, value.members_count) for value in values] == [
            (2, "superseded", 2),
            (3, "assigned", 3),
        ]
        assert [value.causes[0].member_id for value in values] == [second, third]


def test_last_member_that_leaves() -> None:
    with Context() as context:
        (only,) = context.stable_group(1)
        context.leave(only)
        assert context.state() is GroupState.EMPTY
        value = history(context)[1]
        assert (value.epoch, value.outcome, value.members_count, triggers(value)) == (2, "empty", 0, ["member left"])
        group = context.shard.groups["g"]
        assert group.metadata is not None
        assert group.metadata.generation == value.epoch


def test_static_member_that_comes_back_with_another_assignor() -> None:
    with Context() as context:
        first, second = context.static_group(["a", "b"], protocols=[("range", b"r"), ("sticky", b"s")])
        replaced = context.join(instance="b", protocols=[("sticky", b"s")])
        context.join(first, instance="a", protocols=[("range", b"r"), ("sticky", b"s")])
        value_of_second = replaced.response.member_id
        context.sync(first, 2, {}, instance="a", protocol_name="sticky")
        value = history(context)[1]
        assert triggers(value) == ["static member replaced", "assignor changed"]
        assert value.causes[0].group_instance_id == "b"
        assert (value.causes[0].member_id, value.causes[0].detail) == (value_of_second, f"it was {second} before")
        assert value.causes[1].detail == "range -> sticky"


def test_static_member_that_comes_back_unchanged_does_not_rebalance() -> None:
    with Context() as context:
        context.static_group(["a", "b"])
        context.join(instance="b")
        assert len(context.history.ended) == 1


def test_assignment_that_cannot_be_written() -> None:
    with Context() as context:
        (only,) = context.stable_group(1)
        context.join(only)
        context.fail()
        context.sync(only, 2, {only: b"x"})
        rejoin(context, [only], 3)
        values = history(context)
        assert [(value.epoch, value.outcome) for value in values[1:]] == [(2, "superseded"), (3, "assigned")]
        assert [(cause.trigger, cause.detail) for cause in values[2].causes] == [
            ("assignment not written", "COORDINATOR_NOT_AVAILABLE")
        ]


def test_empty_generation_that_cannot_be_written_is_not_recorded() -> None:
    with Context() as context:
        (only,) = context.stable_group(1)
        context.fail()
        context.leave(only)
        assert len(context.history.ended) == 1


def test_leader_that_rejoins_after_a_change_of_coordinator() -> None:
    with Context() as context:
        (only,) = context.stable_group(1, protocols=[("range", subscription("t")), ("sticky", subscription("t"))])
        context.restart()
        context.join(only, protocols=[("range", subscription("t")), ("sticky", subscription("t"))])
        context.sync_all([only], 2)
        assert triggers(history(context)[1]) == ["coordinator changed"]
        context.join(only, protocols=[("range", subscription("t")), ("sticky", subscription("t"))])
        context.sync_all([only], 3)
        assert triggers(history(context)[2]) == ["member rejoined"]


def test_group_that_is_too_large_after_a_load() -> None:
    with Context() as context:
        first, second = context.stable_group(2)
        context.config = type(context.config)(max_size=1)
        context.restart()
        context.join(first)
        context.join(second)
        context.sync_all([first], 2)
        value = history(context)[1]
        assert set(triggers(value)) == {"group too large"}
        assert value.causes[0].detail == "2 members are more than group.max.size"
        assert value.causes[1].member_id == second


def test_new_partitions_that_the_leader_noticed() -> None:
    topics = Topics(t=3)
    with Context() as context:
        offer = [("range", subscription("t"))]
        member_id, _ = context.new_member(protocols=offer)
        context.sleep(DELAY_MS)
        context.sync(member_id, 1, {member_id: assignment({"t": [0, 1, 2]})})
        topics.counts["t"] = 5
        context.join(member_id, protocols=offer)
        context.sync(member_id, 2, {member_id: assignment({"t": [0, 1, 2, 3, 4]})})
        value = history(context, topics)[1]
        assert [(cause.trigger, cause.detail) for cause in value.causes] == [
            ("topics changed", "t has 5 partitions, not 3")
        ]
        assert (value.partitions, value.moved, value.added) == (5, 0, 2)


def test_deletion_of_a_group_deletes_its_history() -> None:
    with Context() as context:
        (only,) = context.stable_group(1)
        context.leave(only)
        assert (
            context.run(context.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), 2))
            .results[0]
            .error_code
            == ErrorCode.NONE
        )
        assert context.history.forgotten == [("g", 2)]
        context.restart()
        assert context.history.forgotten == [("g", 2)]


def test_causes_are_counted_beyond_those_that_are_kept() -> None:
    with Context() as context:
        for _ in range(MAX_CAUSES + 4):
            context.new_member()
        context.sleep(REBALANCE_MS)
        rebalance = context.history.ended[0]
        assert (len(rebalance.causes), rebalance.causes_count) == (MAX_CAUSES, MAX_CAUSES + 4)


def test_coordinator_that_resigns_forgets_what_is_under_way() -> None:
    with Context() as context:
        context.stable_group(1)
        context.new_member()
        context.resign()
        assert [one.outcome for one in context.history.ended] == [Outcome.ASSIGNED]


def test_triggers_are_named_as_documented() -> None:
    assert len({trigger.value for trigger in Trigger}) == len(Trigger)


def test_members_that_come_and_go_before_an_assignment_are_not_kept() -> None:
    """The leader fails before it assigns, each time that another member is there."""
    with Context(initial_rebalance_delay_ms=0) as context:
        (first,) = context.stable_group(1)
        for _ in range(100):
            other, _ = context.new_member()
            context.join(first)
            context.leave(other)
            context.sleep(10)
            assert context.join(first).done
        kept = context.history.ended[-1]
        assert kept.outcome is Outcome.SUPERSEDED
        assert [len(kept.before), len(kept.claims), len(kept.gone)] == [2, 2, 1], "the first two members"
        context.sync(first, context.join(first).response.generation_id, {first: assignment({"t": [0]})})
        value = history(context, Topics(t=1))[-1]
        assert (value.outcome, value.members_count) == ("assigned", 1)


def test_a_superseded_rebalance_is_summarised_while_the_next_one_changes() -> None:
    """The summary is made in steps, and a member that was new may leave between them."""
    with Context() as context:
        joins = [context.new_member() for _ in range(4)]
        context.sleep(5 * DELAY_MS)
        ids = [member_id for member_id, _ in joins]
        leader = joins[0][1].response.leader
        given = {member_id: assignment({"t": [number]}) for number, member_id in enumerate(ids)}
        for member_id in sorted(ids, key=lambda one: one == leader):
            context.sync(member_id, 1, given if member_id == leader else {})
        context.history.ended.clear()
        context.new_member()
        for member_id in ids:
            context.join(member_id)
        newest, _ = context.new_member()
        (superseded,) = context.history.ended
        steps = Summaries(1, Topics(t=4)).value_of(superseded)
        next(steps)
        context.leave(newest)
        for _ in steps:
            pass


def observed(group_id: str) -> int:
    """The number of rebalances of the group that are kept in memory."""
    return sum(isinstance(one, Rebalance) and one.group_id == group_id for one in gc.get_objects())


def test_a_group_that_cannot_be_written_leaves_no_rebalance() -> None:
    with Context() as context:
        context.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert context.join(group="new", version=3).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert observed("new") == 0
        context.join(group="new", version=3)
        assert observed("new") == 1
