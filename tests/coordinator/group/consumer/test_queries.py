"""Describe, list and delete consumer groups, and requests of the classic protocol about them."""

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteGroupsRequest, ListGroupsRequest, ListGroupsResponse
from tests.coordinator.group.consumer.context import ConsumerContext


def listed(context: ConsumerContext, **filters: list[str]) -> list[ListGroupsResponse.ListedGroup]:
    return context.run(context.coordinator.list_groups(ListGroupsRequest(**filters), 5)).groups


def delete(context: ConsumerContext) -> ErrorCode:
    response = context.run(context.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), 2))
    return ErrorCode(response.results[0].error_code)


def test_group_is_described_with_epochs_and_assignments() -> None:
    with ConsumerContext({"t": 2}) as context:
        context.consumer("m1", rack="r", instance="i")
        context.consumer("m2")
        group = context.consumer_describe()
        assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Reconciling")
        assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (3, 3, "uniform")
        first, second = group.members
        assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("m1", "i", "r", 2)
        assert (first.client_id, first.client_host, first.member_type) == ("client", "/127.0.0.1", 1)
        assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], "")
        assert [(t.topic_name, t.partitions) for t in first.assignment.topic_partitions] == [("t", [0, 1])]
        assert [len(t.partitions) for t in first.target_assignment.topic_partitions] == [1]
        assert (second.member_id, second.member_epoch) == ("m2", 3)
        assert second.assignment.topic_partitions == []


def test_partitions_to_be_revoked_are_described_as_owned() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1")
        context.consumer("m2")
        first.beat()
        [described, _] = context.consumer_describe().members
        assert [t.partitions for t in described.assignment.topic_partitions] == [[0, 1]]


def test_group_that_does_not_exist_or_is_classic_is_not_found() -> None:
    with ConsumerContext() as context:
        group = context.consumer_describe()
        assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
        context.stable_group()
        group = context.consumer_describe()
        assert group.error_message == "Group g is not a consumer group."


def test_empty_group_id_is_not_described() -> None:
    with ConsumerContext() as context:
        group = context.consumer_describe("")
        assert (group.group_id, group.error_code, group.error_message) == ("", ErrorCode.INVALID_GROUP_ID, None)
        context.coordinator.close()
        assert context.consumer_describe("").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_states_are_listed() -> None:
    with ConsumerContext({"t": 2}) as context:
        member = context.consumer("m1")
        context.stable_group(group="c")
        groups = {group.group_id: group for group in listed(context)}
        assert (groups["g"].group_type, groups["g"].protocol_type, groups["g"].group_state) == (
            "consumer",
            "consumer",
            "Stable",
        )
        assert groups["c"].group_type == "classic"
        assert [group.group_id for group in listed(context, types_filter=["Consumer"])] == ["g"]
        assert [group.group_id for group in listed(context, types_filter=["classic"])] == ["c"]
        context.consumer("m2")
        assert [group.group_id for group in listed(context, states_filter=["reconciling"])] == ["g"]
        member.leave()
        context.beat("m2", -1)
        assert [group.group_id for group in listed(context, states_filter=["Empty"])] == ["g"]


def test_group_with_members_is_not_deleted() -> None:
    with ConsumerContext() as context:
        member = context.consumer("m1")
        context.commit_error(member_id="m1", generation=2)
        assert delete(context) is ErrorCode.NON_EMPTY_GROUP
        member.leave()
        assert delete(context) is ErrorCode.NONE
        assert context.shard.groups == {}
        assert context.replayed_state() == {}
        assert delete(context) is ErrorCode.GROUP_ID_NOT_FOUND


def test_classic_requests_about_a_consumer_group() -> None:
    with ConsumerContext() as context:
        context.consumer("m1")
        assert context.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert context.describe().error_message == "Group g is not a classic group."
        assert context.describe(version=5).group_state == "Dead"
        assert context.heartbeat("m1", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_group_with_members_is_no_consumer_group() -> None:
    with ConsumerContext() as context:
        [classic] = context.stable_group()
        assert context.beat_error("m1", 3) is ErrorCode.GROUP_ID_NOT_FOUND
        assert context.beat_error("m1", -1) is ErrorCode.GROUP_ID_NOT_FOUND
        assert context.heartbeat(classic, 1) is ErrorCode.NONE
