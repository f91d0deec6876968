"""Heartbeats of consumer groups, with a log in memory and a clock that moves on command."""

import asyncio
from typing import Any

import pytest

from gregor.coordinator.group.consumer.config import ConsumerGroupSettings
from gregor.coordinator.group.consumer.group import ConsumerGroupState
from gregor.protocol.errors import ErrorCode
from tests.coordinator.group.consumer.context import ConsumerContext

JOIN: dict[str, Any] = {"topics": ["t"], "rebalance_ms": 60_000, "owned": {}}


# --- join and rebalance


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
        assert (second.epoch, second.owned) == (3, {})
        first.beat()
        assert first.epoch == 2, "it keeps its epoch until it has revoked"
        assert len(first.owned["t"]) == 2
        second.beat()
        assert second.owned == {}, "the first member has not confirmed yet"
        assert context.found().state is ConsumerGroupState.RECONCILING
        first.beat()
        assert first.epoch == 3
        second.beat()
        assert sorted(first.owned["t"] + second.owned["t"]) == [0, 1, 2, 3]
        assert context.found().state is ConsumerGroupState.STABLE


def test_members_of_version_0_get_an_id_from_the_coordinator() -> None:
    with ConsumerContext() as context:
        response = context.beat("", 0, version=0, **JOIN).response
        assert response.error_code == ErrorCode.NONE
        assert response.member_id == "u1"
        assert list(context.found().members) == ["u1"]


def test_subscription_to_a_topic_that_does_not_exist_is_served_when_it_does() -> None:
    with ConsumerContext({}) as context:
        member = context.consumer("m1", ["later"])
        assert (member.epoch, member.owned) == (2, {})
        context.set_topic("later", 2)
        context.settle_group(member)
        assert member.owned == {"later": [0, 1]}


def test_member_that_changes_its_topics_gets_those_of_the_new_ones() -> None:
    with ConsumerContext({"a": 2, "b": 1}) as context:
        member = context.consumer("m1", ["a"])
        response = context.beat("m1", member.epoch, topics=["b"]).response
        assert response.assignment is not None
        assert context.named(response.assignment.topic_partitions) == {}, "it has not revoked those of the old"
        response = context.beat("m1", response.member_epoch, owned={}).response
        assert response.assignment is not None
        assert context.named(response.assignment.topic_partitions) == {"b": [0]}


def test_full_heartbeat_is_answered_with_the_assignment() -> None:
    with ConsumerContext({"t": 2}) as context:
        member = context.consumer("m1")
        response = context.beat("m1", member.epoch, topics=["t"], rebalance_ms=60_000, owned={"t": [0, 1]}).response
        assert response.assignment is not None
        assert context.named(response.assignment.topic_partitions) == {"t": [0, 1]}


def test_assignor_that_most_members_name_is_used() -> None:
    with ConsumerContext({"t": 4}) as context:
        context.join_new("m1", assignor="range")
        assert context.consumer_describe().assignor_name == "range"
        context.join_new("m2", assignor="uniform")
        context.join_new("m3", assignor="uniform")
        assert context.consumer_describe().assignor_name == "uniform"


# --- heartbeats that change nothing


def test_heartbeat_that_changes_nothing_writes_nothing() -> None:
    with ConsumerContext() as context:
        member = context.consumer("m1")
        context.settle_group(member)
        appends = context.log.appends
        response = context.beat("m1", member.epoch).response
        assert (response.error_code, response.assignment, response.member_epoch) == (ErrorCode.NONE, None, member.epoch)
        assert context.log.appends == appends


def test_usual_heartbeat_is_answered_while_records_wait_for_their_commit() -> None:
    with ConsumerContext() as context:
        member = context.consumer("m1")
        context.settle_group(member)
        context.hold()
        context.call(context.coordinator.offset_commit(_commit("other"), 9))
        assert context.beat("m1", member.epoch).done
        context.commit()


def test_heartbeat_that_joins_waits_for_the_commit() -> None:
    with ConsumerContext() as context:
        context.hold()
        call = context.beat("m1", 0, **JOIN)
        assert not call.done
        context.commit()
        assert call.response.member_epoch == 2


def test_heartbeat_from_another_address_is_recorded() -> None:
    with ConsumerContext() as context:
        member = context.consumer("m1")
        context.beat("m1", member.epoch, client_host="/10.0.0.1")
        assert context.found().members["m1"].subscription.client_host == "/10.0.0.1"
        assert context.found().epoch == member.epoch


# --- requests that are refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": 1, "version": 0}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": -1, "version": 0}, "MemberId can't be empty."),
        ({"group": ""}, "GroupId can't be empty."),
        ({"instance": ""}, "InstanceId can't be empty."),
        ({"rack": ""}, "RackId can't be empty."),
        ({"rebalance_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"owned": {"t": [0]}}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topics": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_requests_are_refused_as_apache_kafka_does(options: dict[str, Any], message: str) -> None:
    with ConsumerContext() as context:
        given = {**JOIN, "member_id": "m1", "epoch": 0, **options}
        response = context.beat(**given).response
        assert ErrorCode(response.error_code) is ErrorCode.INVALID_REQUEST
        assert response.error_message == message
        assert context.log.appends == 0


def test_assignor_that_is_not_served_is_refused() -> None:
    with ConsumerContext() as context:
        response = context.beat("m1", 0, assignor="sticky", **JOIN).response
        assert ErrorCode(response.error_code) is ErrorCode.UNSUPPORTED_ASSIGNOR
        assert response.error_message == (
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
        )


def test_group_that_is_full_admits_no_other_member() -> None:
    with ConsumerContext(settings=ConsumerGroupSettings(max_size=1)) as context:
        member = context.consumer("m1")
        response = context.beat("m2", 0, **JOIN).response
        assert ErrorCode(response.error_code) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert context.beat_error("m1", member.epoch) is ErrorCode.NONE
        assert context.beat_error("m1", 0, **JOIN) is ErrorCode.NONE


def test_member_that_is_unknown_is_refused() -> None:
    with ConsumerContext() as context:
        assert context.beat_error("m1", 3) is ErrorCode.GROUP_ID_NOT_FOUND
        assert context.beat_error("m1", -1) is ErrorCode.GROUP_ID_NOT_FOUND
        context.join_new("m1")
        assert context.beat_error("m2", 3) is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.beat_error("m2", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_with_another_epoch_is_fenced() -> None:
    with ConsumerContext({"t": 2}) as context:
        context.join_new("m1")
        assert context.beat_error("m1", 3) is ErrorCode.FENCED_MEMBER_EPOCH
        assert context.beat_error("m1", 1, owned={}) is ErrorCode.FENCED_MEMBER_EPOCH


def test_member_that_lost_the_answer_retries_with_the_epoch_before() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1")
        context.settle_group(first)
        context.join_new("m2")
        context.beat("m1", 2)
        context.beat("m1", 2, owned={"t": [0]})
        assert context.found().members["m1"].epoch == 3
        owned = context.named_assignment("m1")
        response = context.beat("m1", 2, owned=owned).response
        assert (ErrorCode(response.error_code), response.member_epoch) == (ErrorCode.NONE, 3)
        assert context.beat_error("m1", 2, owned={"t": [0, 1]}) is ErrorCode.FENCED_MEMBER_EPOCH
        assert context.beat_error("m1", 2) is ErrorCode.FENCED_MEMBER_EPOCH, "it must report what it owns"


def test_member_that_was_fenced_joins_again_and_keeps_its_partitions() -> None:
    with ConsumerContext({"t": 2}) as context:
        member = context.consumer("m1")
        assert context.beat_error("m1", 7) is ErrorCode.FENCED_MEMBER_EPOCH
        member.epoch = 0
        member.beat()
        assert (member.epoch, member.owned) == (2, {"t": [0, 1]})


# --- leave


def test_member_that_leaves_is_gone_with_a_new_group_epoch() -> None:
    with ConsumerContext({"t": 2}) as context:
        first, second = context.consumer("m1"), context.consumer("m2")
        context.settle_group(first, second)
        epoch = context.found().epoch
        response = context.beat("m1", -1).response
        assert (response.member_id, response.member_epoch) == ("m1", -1)
        assert context.found().epoch == epoch + 1
        context.settle_group(second)
        assert second.owned == {"t": [0, 1]}


def test_group_of_which_all_leave_is_empty() -> None:
    with ConsumerContext() as context:
        member = context.consumer("m1")
        member.leave()
        assert context.found().state is ConsumerGroupState.EMPTY
        assert context.timers() == {("expiry",)}
        member.epoch, member.owned = 0, {}
        member.beat()
        assert member.epoch == 4


def test_leave_that_cannot_be_written_changes_nothing() -> None:
    with ConsumerContext() as context:
        member = context.consumer("m1")
        context.fail()
        assert member.leave() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert list(context.found().members) == ["m1"]
        context.sleep(46_000)
        assert context.found().members == {}


# --- assignment interval (KIP-1263)


def test_target_is_computed_at_most_once_in_the_assignment_interval() -> None:
    with ConsumerContext({"t": 2}, assignment_interval_ms=1_000) as context:
        first = context.consumer("m1")
        second = context.consumer("m2")
        assert (second.epoch, second.owned) == (2, {}), "it joins in the epoch of the present target"
        assert context.found().epoch == 3
        assert context.found().state is ConsumerGroupState.ASSIGNING
        context.sleep(1_000)
        context.settle_group(first, second)
        assert (first.epoch, second.epoch) == (3, 3)
        assert sorted(first.owned["t"] + second.owned["t"]) == [0, 1]


def test_interval_lasts_over_a_restart() -> None:
    with ConsumerContext({"t": 2}, assignment_interval_ms=30_000) as context:
        context.consumer("m1")
        context.restart()
        second = context.consumer("m2")
        assert second.epoch == 2
        context.sleep(30_000)
        context.beat("m1", 2)
        assert context.found().target_epoch == 3


# --- large groups


def test_large_assignment_is_computed_in_turns_and_the_join_waits_for_it() -> None:
    with ConsumerContext({"t": 1_000}) as context:
        first = context.consumer("m1")
        assert first.epoch == 2
        assert len(first.owned["t"]) == 1_000
        second = context.consumer("m2")
        context.settle_group(first, second)
        assert (len(first.owned["t"]), len(second.owned["t"])) == (500, 500)


def test_join_that_waits_for_its_assignment_fails_when_the_coordinator_moves() -> None:
    with ConsumerContext({"t": 1_000}) as context:
        context.gate.held = asyncio.Event()
        call = context.beat("m1", 0, **JOIN)
        assert list(context.found().members) == ["m1"]
        assert not call.done
        context.resign()
        assert call.error is ErrorCode.NOT_COORDINATOR


def test_assignment_is_not_installed_if_a_member_left_while_it_was_computed() -> None:
    with ConsumerContext({"t": 1_000}) as context:
        first, second = context.consumer("m1"), context.consumer("m2")
        context.settle_group(first, second)
        held = context.gate.held = asyncio.Event()
        third = context.beat("m3", 0, **JOIN)
        second.leave()
        context.gate.held = None
        held.set()
        context.settle()
        assert third.response.member_epoch == 3, "the target before"
        assert context.found().target_epoch == 3
        context.settle_group(first)
        assert context.found().target_epoch == context.found().epoch == 5


def test_assignment_is_installed_though_a_member_joined_while_it_was_computed() -> None:
    with ConsumerContext({"t": 1_000}) as context:
        context.consumer("m1")
        held = context.gate.held = asyncio.Event()
        second = context.beat("m2", 0, **JOIN)
        third = context.beat("m3", 0, **JOIN)
        assert not second.done
        assert third.response.member_epoch == 2
        context.gate.held = None
        held.set()
        context.settle()
        assert second.response.member_epoch == 3
        assert (context.found().target_epoch, context.found().epoch) == (3, 4)


def test_join_that_cannot_be_written_does_not_wait() -> None:
    with ConsumerContext({"t": 1_000}) as context:
        context.fail()
        assert context.beat_error("m1", 0, **JOIN) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        context.settle()
        assert context.coordinator.shard(0).consumers.find("g") is None


def _commit(group: str) -> Any:
    from gregor.protocol.messages import OffsetCommitRequest

    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id=group, topics=[topic])


# --- what is not committed


def test_a_join_that_is_repeated_waits_for_what_the_first_one_wrote() -> None:
    """Also when a wait has timed out, and reads wait no longer: the next coordinator may not know the epoch."""
    with ConsumerContext({"t": 3}) as context:
        context.hold()
        first = context.beat("m1", 0, **JOIN)
        context.sleep(10_000)
        assert first.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        again = context.beat("m1", 0, **JOIN)
        assert not again.done
        context.commit()
        assert (again.response.member_epoch, again.response.assignment is not None) == (2, True)


def test_a_heartbeat_from_which_the_member_learns_nothing_is_answered_before_that() -> None:
    with ConsumerContext({"t": 4}) as context:
        first = context.consumer("m1")
        context.hold()
        context.beat("m2", 0, **JOIN)
        revoking = context.beat("m1", first.epoch)
        context.sleep(10_000)
        assert revoking.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.beat("m1", first.epoch).response.member_epoch == first.epoch
        full = context.beat("m1", first.epoch, topics=["t"], rebalance_ms=60_000, owned={"t": [0, 1, 2, 3]})
        assert not full.done, "its response has the assignment"
