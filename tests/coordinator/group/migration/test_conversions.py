"""Groups that change between the protocols while their members work: by group.consumer.migration.policy."""

from typing import Any

import pytest

from gregor.coordinator.group.consumer.config import ConsumerGroupSettings
from gregor.coordinator.group.migration import conversions
from gregor.coordinator.group.migration.conversion import decode_assignment
from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ConsumerProtocolSubscription
from tests.coordinator.context import Call
from tests.coordinator.group.consumer.context import Consumer, ConsumerContext, Partitions
from tests.coordinator.group.migration.test_conversion import given, metadata

SESSION_MS = 100_000
POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


def context_of(policy: str = "bidirectional", **options: Any) -> ConsumerContext:
    settings = ConsumerGroupSettings(migration_policy=policy, **options.pop("settings", {}))
    return ConsumerContext({"orders": 4}, settings=settings, **options)


def classic_group(context: ConsumerContext, assignments: list[Partitions], **options: Any) -> list[str]:
    """A classic group in generation 1, with these assignments."""
    offer = [("range", metadata("orders"))]
    joins = [context.new_member(protocols=offer, **options) for _ in assignments]
    context.sleep(3_000 * (len(joins) + 1))
    ids = [member_id for member_id, _ in joins]
    data = {member_id: given(one) for member_id, one in zip(ids, assignments, strict=True)}
    for member_id in ids:
        assert context.sync(member_id, 1, data if member_id == ids[0] else None).error is ErrorCode.NONE
    assert context.state() is GroupState.STABLE
    return ids


class ClassicConsumer:
    """A consumer of the classic protocol, with a cooperative assignor, in a group of either kind."""

    def __init__(self, context: ConsumerContext, member_id: str, generation: int, owned: Partitions) -> None:
        self.context = context
        self.member_id = member_id
        self.generation = generation
        self.owned = owned

    def beat(self) -> bool:
        """Send a heartbeat, and what follows from its answer; return whether anything changed."""
        if self.context.heartbeat(self.member_id, self.generation) is ErrorCode.NONE:
            return False
        self.rejoin()
        return True

    def join(self) -> Call[Any]:
        owned = [
            ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=partitions)
            for name, partitions in self.owned.items()
        ]
        offer = [("range", metadata("orders", owned_partitions=owned))]
        return self.context.join(self.member_id, protocols=offer, session_ms=SESSION_MS)

    def rejoin(self) -> None:
        response = self.join().response
        assert response.error_code == ErrorCode.NONE, response
        assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
        assert response.members == []
        self.generation = response.generation_id
        sync = self.context.sync(self.member_id, self.generation)
        if sync.error is ErrorCode.NONE:
            assigned = decode_assignment(sync.response.assignment).assigned_partitions
            self.owned = {topic.topic: sorted(topic.partitions) for topic in assigned}


def all_partitions(*members: Consumer | ClassicConsumer) -> list[int]:
    return sorted(index for member in members for index in member.owned.get("orders", ()))


def settle(*members: Consumer | ClassicConsumer) -> None:
    for _ in range(20):
        if not any([member.beat() for member in members]):
            return
    raise AssertionError("the group does not settle")


# --- upgrade


@pytest.mark.parametrize("policy", POLICIES)
def test_the_first_heartbeat_converts_a_stable_group(policy: str) -> None:
    with context_of(policy) as context:
        context.commit_offset(7, topic="orders")
        ids = classic_group(context, [{"orders": [0, 1]}, {"orders": [2, 3]}])
        context.commit_offset(8, topic="orders", member_id=ids[0], generation=1)
        answer = context.beat("new", 0, topics=["orders"], owned={}, rebalance_ms=9_000)
        if policy in ("downgrade", "disabled"):
            assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
            assert context.state() is GroupState.STABLE
            assert context.heartbeat(ids[0], 1) is ErrorCode.NONE
        else:
            assert (answer.error, answer.response.member_epoch) == (ErrorCode.NONE, 2)
            assert context.found().members.keys() == {*ids, "new"}
            assert context.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert context.fetch_offset("orders") == 8
        before = context.replayed_state(), context.shard.groups["g"].consumer is None
        context.restart()
        assert (context.replayed_state(), context.shard.groups["g"].consumer is None) == before


def test_members_of_both_protocols_share_the_partitions() -> None:
    with context_of() as context:
        ids = classic_group(context, [{"orders": [0, 1]}, {"orders": [2, 3]}])
        old = [
            ClassicConsumer(context, ids[0], 1, {"orders": [0, 1]}),
            ClassicConsumer(context, ids[1], 1, {"orders": [2, 3]}),
        ]
        new = Consumer(context, "new", ["orders"])
        settle(*old, new)
        assert all_partitions(*old, new) == [0, 1, 2, 3]
        assert len(new.owned["orders"]) == 1
        assert {old[0].generation, old[1].generation, new.epoch} == {2}
        described = context.consumer_describe()
        assert {member.member_id: member.member_type for member in described.members} == {
            ids[0]: 0,
            ids[1]: 0,
            "new": 1,
        }
        assert described.group_state == "Stable"


def test_a_partition_is_free_only_after_its_classic_owner_has_joined_again_without_it() -> None:
    with context_of() as context:
        (member_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}])
        old = ClassicConsumer(context, member_id, 1, {"orders": [0, 1, 2, 3]})
        new = Consumer(context, "new", ["orders"])
        new.beat()
        assert new.owned.get("orders", []) == []
        old.rejoin()
        # It was assigned less, and reports that with the next join: until then nothing is free.
        assert len(old.owned["orders"]) == 2
        new.beat()
        assert new.owned.get("orders", []) == []
        assert context.heartbeat(member_id, old.generation) is ErrorCode.REBALANCE_IN_PROGRESS
        settle(old, new)
        assert all_partitions(old, new) == [0, 1, 2, 3]


@pytest.mark.parametrize("completing", [False, True])
def test_a_group_in_a_rebalance_is_converted_and_its_members_join_again(completing: bool) -> None:
    with context_of() as context:
        ids = classic_group(context, [{"orders": [0, 1]}, {"orders": [2, 3]}])
        waiting = [context.join(ids[0], protocols=[("range", metadata("orders"))])]
        if completing:
            waiting.append(context.join(ids[1], protocols=[("range", metadata("orders"))]))
            assert [join.response.generation_id for join in waiting] == [2, 2]
            waiting = [context.sync(ids[1], 2)]
        assert not any(call.done for call in waiting)
        new = Consumer(context, "new", ["orders"])
        new.beat()
        assert [call.error for call in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS]
        old = [
            ClassicConsumer(context, ids[0], 1 + completing, {"orders": [0, 1]}),
            ClassicConsumer(context, ids[1], 1 + completing, {"orders": [2, 3]}),
        ]
        settle(*old, new)
        assert all_partitions(*old, new) == [0, 1, 2, 3]


def test_a_failed_append_leaves_the_classic_group_as_it_was() -> None:
    with context_of() as context:
        ids = classic_group(context, [{"orders": [0, 1]}])
        join = context.join(ids[0], protocols=[("range", metadata("orders"))])
        assert join.done
        context.fail()
        answer = context.beat("new", 0, topics=["orders"], owned={}, rebalance_ms=9_000)
        assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.shard.groups["g"].consumer is None
        assert context.heartbeat(ids[0], 2) is ErrorCode.NONE


def test_a_conversion_is_one_batch() -> None:
    with context_of() as context:
        classic_group(context, [{"orders": [0, 1]}])
        appends = context.log.appends
        Consumer(context, "new", ["orders"]).beat()
        assert context.log.appends == appends + 1


def test_an_empty_classic_group_is_converted_whatever_the_policy() -> None:
    with context_of("disabled") as context:
        context.commit_offset(7, topic="orders")
        (member_id,) = classic_group(context, [{"orders": [0, 1]}])
        context.leave(member_id)
        assert context.beat("new", 0, topics=["orders"], owned={}, rebalance_ms=9_000).error is ErrorCode.NONE
        assert (
            context.fetch_offset("orders") == -1000 - ErrorCode.UNKNOWN_MEMBER_ID or context.fetch_offset("orders") == 7
        )


# --- classic members


def test_a_classic_member_joins_a_consumer_group() -> None:
    with context_of() as context:
        new = Consumer(context, "new", ["orders"])
        settle(new)
        offer = [("range", metadata("orders"))]
        told = context.join(protocols=offer)
        assert told.error is ErrorCode.MEMBER_ID_REQUIRED
        assert told.response.member_id not in context.found().members
        member = ClassicConsumer(context, told.response.member_id, -1, {})
        member.rejoin()
        settle(new, member)
        assert all_partitions(new, member) == [0, 1, 2, 3]
        assert len(member.owned["orders"]) == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"protocols": [("sticky", metadata("orders"))]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "made-up", "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": [("range", b"?")], "member_id": "x"}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"member_id": "x"}, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_joins_that_are_refused(options: dict[str, Any], error: ErrorCode) -> None:
    full = error is ErrorCode.GROUP_MAX_SIZE_REACHED
    with context_of(settings={"max_size": 2 if full else 9}) as context:
        classic_group(context, [{"orders": [0]}])
        Consumer(context, "new", ["orders"]).beat()
        appends = context.log.appends
        assert context.join(**{"protocols": [("range", metadata("orders"))], **options}).error is error
        assert context.log.appends == appends


def test_no_classic_member_joins_while_migration_is_disabled() -> None:
    with context_of("disabled") as context:
        Consumer(context, "new", ["orders"]).beat()
        assert context.join(protocols=[("range", metadata("orders"))]).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_requests_of_classic_members_are_checked() -> None:
    with context_of() as context:
        (member_id,) = classic_group(context, [{"orders": [0]}], instance=None)
        Consumer(context, "new", ["orders"]).beat()
        assert context.heartbeat("new", 2) is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.heartbeat(member_id, 1, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.heartbeat(member_id, 0) is ErrorCode.ILLEGAL_GENERATION
        assert context.sync(member_id, 0).error is ErrorCode.ILLEGAL_GENERATION
        assert context.sync(member_id, 1, protocol_name="sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert context.sync(member_id, 1, protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert context.sync(member_id, 1).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert (
            context.commit_error(member_id=member_id, generation=0, topic="orders", version=8)
            is ErrorCode.ILLEGAL_GENERATION
        )


@pytest.mark.parametrize("version", range(10))
def test_joins_can_be_answered_in_every_version(version: int) -> None:
    with context_of() as context:
        Consumer(context, "new", ["orders"]).beat()
        offer = [("range", metadata("orders"))]
        for options in ({}, {"member_id": "x"}, {"protocols": []}):
            join = context.join(**{"protocols": offer, "version": version, **options})
            assert join.response.encode(version)


def test_a_classic_member_that_does_not_join_again_in_time_is_removed() -> None:
    with context_of() as context:
        (member_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}], rebalance_ms=20_000, session_ms=10_000)
        new = Consumer(context, "new", ["orders"])
        new.beat()
        for _ in range(4):
            assert context.heartbeat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
            context.sleep(5_000)
        assert context.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
        settle(new)
        assert all_partitions(new) == [0, 1, 2, 3]


def test_a_classic_member_that_does_not_sync_in_time_is_removed() -> None:
    with context_of() as context:
        (member_id,) = classic_group(context, [{"orders": [0]}], rebalance_ms=20_000, session_ms=60_000)
        new = Consumer(context, "new", ["orders"])
        new.beat()
        offer = [("range", metadata("orders"))]
        context.join(member_id, protocols=offer, rebalance_ms=20_000, session_ms=60_000)
        context.sleep(19_999)
        assert member_id in context.found().members
        context.sleep(1)
        assert member_id not in context.found().members


def test_the_session_of_a_classic_member_has_its_own_length() -> None:
    with context_of() as context:
        (member_id,) = classic_group(context, [{"orders": [0]}], session_ms=10_000, rebalance_ms=300_000)
        Consumer(context, "new", ["orders"]).beat()
        context.sleep(9_999)
        assert member_id in context.found().members
        context.sleep(1)
        assert member_id not in context.found().members


def test_timers_end_with_the_member() -> None:
    with context_of() as context:
        (member_id,) = classic_group(context, [{"orders": [0]}])
        Consumer(context, "new", ["orders"]).beat()
        assert context.heartbeat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert ("consumer-join", "g", member_id) in context.timers()
        context.leave(member_id)
        assert not any(member_id in key for key in context.timers() if isinstance(key, tuple))


def test_members_leave_by_the_classic_request() -> None:
    with context_of() as context:
        first, second = classic_group(context, [{"orders": [0, 1]}, {"orders": [2, 3]}])
        new = Consumer(context, "new", ["orders"])
        new.beat()
        answers = context.leave(first, "nobody", ("", "i")).response.members
        assert [answer.error_code for answer in answers] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        assert context.found().members.keys() == {second, "new"}
        epoch = context.found().epoch
        assert context.leave("nobody").response.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert context.found().epoch == epoch


# --- downgrade


@pytest.mark.parametrize("policy", ("bidirectional", "upgrade"))
@pytest.mark.parametrize("how", ["leave", "session", "admin"])
def test_when_the_last_consumer_leaves_the_group_is_classic_again(policy: str, how: str) -> None:
    with context_of(policy) as context:
        context.commit_offset(7, topic="orders")
        (member_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}], session_ms=100_000)
        old = ClassicConsumer(context, member_id, 1, {"orders": [0, 1, 2, 3]})
        new = Consumer(context, "new", ["orders"])
        settle(old, new)
        appends = context.log.appends
        if how == "leave":
            assert new.leave() is ErrorCode.NONE
        elif how == "admin":
            assert context.leave("new").response.members[0].error_code == ErrorCode.NONE
        else:
            context.sleep(45_000)
        assert context.log.appends == appends + 1
        if policy == "upgrade":
            settle(old)
            assert all_partitions(old) == [0, 1, 2, 3]
            return
        group = context.shard.groups["g"]
        assert (group.consumer, group.metadata is not None) == (None, True)
        assert context.state() is GroupState.PREPARING_REBALANCE
        assert context.heartbeat(member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        join = context.join(member_id, protocols=[("range", metadata("orders"))])
        assert (join.response.generation_id, join.response.leader) == (3, member_id)
        assert context.sync(member_id, 3, {member_id: given({"orders": [0]})}).error is ErrorCode.NONE
        assert context.fetch_offset("orders") == 7
        assert context.hard_state() == context.replayed_state()


def test_a_downgraded_group_that_is_loaded_is_stable() -> None:
    with context_of() as context:
        (member_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}])
        old = ClassicConsumer(context, member_id, 1, {"orders": [0, 1, 2, 3]})
        new = Consumer(context, "new", ["orders"])
        settle(old, new)
        new.leave()
        context.restart()
        assert context.state() is GroupState.STABLE
        assert context.heartbeat(member_id, 2) is ErrorCode.NONE
        assert decode_assignment(context.sync(member_id, 2).response.assignment).assigned_partitions


def test_a_failed_append_leaves_the_consumer_group_as_it_was() -> None:
    with context_of() as context:
        (member_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}])
        old = ClassicConsumer(context, member_id, 1, {"orders": [0, 1, 2, 3]})
        new = Consumer(context, "new", ["orders"])
        settle(old, new)
        context.fail()
        assert new.leave() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.found().members.keys() == {member_id, "new"}
        assert context.heartbeat(member_id, 2) is ErrorCode.NONE


def test_a_group_that_is_too_large_stays_a_consumer_group() -> None:
    with context_of(max_size=1) as context:
        new = [Consumer(context, "a", ["orders"])]
        settle(*new)
        classic = []
        for name in ("x", "y"):
            member = ClassicConsumer(context, name, -1, {})
            member.rejoin()
            classic.append(member)
        settle(*new, *classic)
        new[0].leave()
        settle(*classic)
        assert all_partitions(*classic) == [0, 1, 2, 3]


@pytest.mark.parametrize("changed", [False, True])
def test_a_static_member_that_comes_back_with_the_classic_protocol_converts_the_group(changed: bool) -> None:
    with context_of() as context:
        new = Consumer(context, "new", ["orders"], instance="i")
        settle(new)
        topics = ("orders", "more") if changed else ("orders",)
        join = context.join(instance="i", protocols=[("range", metadata(*topics))])
        assert join.error is ErrorCode.NONE
        member_id, generation = join.response.member_id, join.response.generation_id
        assert context.shard.groups["g"].consumer is None
        if changed:
            assert context.state() is GroupState.PREPARING_REBALANCE
            assert context.sync(member_id, generation, instance="i").error is ErrorCode.REBALANCE_IN_PROGRESS
        else:
            assert context.state() is GroupState.STABLE
            sync = context.sync(member_id, generation, instance="i")
            (assigned,) = decode_assignment(sync.response.assignment).assigned_partitions
            assert assigned.partitions == [0, 1, 2, 3]
        assert context.hard_state() == context.replayed_state()


def test_a_static_member_comes_back_with_the_consumer_protocol() -> None:
    with context_of() as context:
        offer = [("range", metadata("orders"))]
        join = context.join(instance="i", protocols=offer)
        context.sleep(3_000)
        member_id = join.response.member_id
        context.sync(member_id, 1, {member_id: given({"orders": [0, 1, 2, 3]})}, instance="i")
        new = Consumer(context, "new", ["orders"], instance="i")
        settle(new)
        assert all_partitions(new) == [0, 1, 2, 3]
        assert context.found().members.keys() == {"new"}


def test_classic_members_alone_learn_of_new_partitions() -> None:
    with context_of("upgrade") as context:
        (member_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}], session_ms=SESSION_MS)
        old = ClassicConsumer(context, member_id, 1, {"orders": [0, 1, 2, 3]})
        new = Consumer(context, "new", ["orders"])
        settle(old, new)
        new.leave()
        settle(old)
        assert context.heartbeat(member_id, old.generation) is ErrorCode.NONE
        context.set_topic("orders", 6)
        settle(old)
        assert all_partitions(old) == [0, 1, 2, 3, 4, 5]


def test_an_empty_consumer_group_becomes_a_classic_one() -> None:
    with context_of() as context:
        new = Consumer(context, "new", ["orders"])
        settle(new)
        new.leave()
        assert context.join("made-up").error is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.found().members == {}
        _, join = context.new_member(protocols=[("range", metadata("orders"))])
        assert context.shard.groups["g"].consumer is None
        context.sleep(3_000)
        assert join.response.generation_id == 1
        assert context.hard_state() == context.replayed_state()


def test_a_group_whose_records_exceed_a_batch_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    with context_of() as context:
        (member_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}])
        monkeypatch.setattr(conversions, "MAX_CONVERSION_BYTES", 100)
        refused = context.beat("new", 0, topics=["orders"], owned={}, rebalance_ms=9_000)
        assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert context.heartbeat(member_id, 1) is ErrorCode.NONE
        monkeypatch.undo()
        old = ClassicConsumer(context, member_id, 1, {"orders": [0, 1, 2, 3]})
        new = Consumer(context, "new", ["orders"])
        settle(old, new)
        monkeypatch.setattr(conversions, "MAX_CONVERSION_BYTES", 100)
        new.leave()
        settle(old)
        assert all_partitions(old) == [0, 1, 2, 3]
        assert context.found().members.keys() == {member_id}


# --- the end of all consumer groups


def end_of_all(context: ConsumerContext) -> None:
    context.served = False
    context.run(context.coordinator.end_consumer_groups())


def test_without_consumer_groups_all_become_classic_ones_and_keep_their_offsets() -> None:
    with context_of() as context:
        mixed = classic_group(context, [{"orders": [0, 1, 2, 3]}])
        old, new = ClassicConsumer(context, mixed[0], 1, {"orders": [0, 1, 2, 3]}), Consumer(context, "new", ["orders"])
        settle(old, new)
        alone = Consumer(context, "alone", ["orders"], group="alone")
        settle(alone)
        for group in ("g", "alone"):
            member = {"g": new, "alone": alone}[group]
            context.commit_offset(7, group=group, topic="orders", member_id=member.member_id, generation=member.epoch)
        end_of_all(context)
        assert all(group.consumer is None for group in context.shard.groups.values())
        assert context.state("g") is GroupState.PREPARING_REBALANCE
        assert context.state("alone") is GroupState.EMPTY
        assert context.describe("alone").protocol_type == "consumer"
        assert context.fetch_offset("orders", group="g") == context.fetch_offset("orders", group="alone") == 7
        join = context.join(mixed[0], protocols=[("range", metadata("orders"))])
        assert join.response.generation_id == 3
        assert context.hard_state() == context.replayed_state()
        _, join = context.new_member(group="alone", protocols=[("range", metadata("orders"))])
        context.sleep(3_000)
        assert join.response.generation_id == alone.epoch + 1


def test_offsets_of_a_group_that_was_ended_expire_from_then_on() -> None:
    with context_of(retention_ms=1_000_000, retention_check_interval_ms=10_000) as context:
        new = Consumer(context, "new", ["orders"])
        settle(new)
        context.commit_offset(7, topic="orders", member_id="new", generation=new.epoch)
        for _ in range(99):
            context.sleep(10_000)
            new.beat()
        end_of_all(context)
        context.sleep(900_000)
        assert context.fetch_offset("orders") == 7
        context.sleep(200_000)
        assert context.fetch_offset("orders") == -1


def test_groups_that_are_loaded_later_become_classic_ones_then() -> None:
    with context_of() as context:
        settle(Consumer(context, "new", ["orders"]))
        context.served = False
        context.restart()
        context.sleep(1)
        assert context.shard.groups["g"].consumer is None
        assert context.hard_state() == context.replayed_state()


def test_an_end_that_cannot_be_written_is_tried_again() -> None:
    with context_of() as context:
        settle(Consumer(context, "new", ["orders"]))
        context.fail()
        with pytest.raises(KafkaError):
            end_of_all(context)
        assert context.shard.groups["g"].consumer is not None
        context.sleep(500)
        assert context.shard.groups["g"].consumer is None


def test_no_member_of_the_consumer_protocol_joins_while_the_groups_may_end() -> None:
    with context_of() as context:
        (classic_id,) = classic_group(context, [{"orders": [0, 1, 2, 3]}])
        present = Consumer(context, "present", ["orders"], group="other")
        settle(present)
        context.admitted = False
        for group, member_id in (("new group", "new"), ("other", "new"), ("g", "new"), ("g", classic_id)):
            refused = context.beat(member_id, 0, topics=["orders"], owned={}, rebalance_ms=9_000, group=group)
            assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert {name for name, group in context.shard.groups.items() if group.consumer is not None} == {"other"}
        assert context.heartbeat(classic_id, 1) is ErrorCode.NONE
        # Those that are members already stay, and may join again.
        present.beat()
        again = context.beat("present", 0, topics=["orders"], owned={}, rebalance_ms=9_000, group="other")
        assert again.error is ErrorCode.NONE
        context.admitted = True
        new = context.beat("new", 0, topics=["orders"], owned={}, rebalance_ms=9_000, group="other")
        assert new.error is ErrorCode.NONE
        context.served = False
        refused = context.beat("later", 0, topics=["orders"], owned={}, rebalance_ms=9_000, group="other")
        assert refused.error is ErrorCode.UNSUPPORTED_VERSION


def test_static_member_comes_back_while_the_groups_may_end() -> None:
    with context_of() as context:
        static = Consumer(context, "first", ["orders"], instance="i")
        settle(static)
        context.beat("first", -2, instance="i")
        context.admitted = False
        back = context.beat("second", 0, topics=["orders"], owned={}, rebalance_ms=9_000, instance="i")
        assert back.error is ErrorCode.NONE
