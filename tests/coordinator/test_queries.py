"""DescribeGroups and ListGroups."""

import pytest

from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tests.coordinator.context import Context


def listed(context: Context, states: list[str] | None = None, types: list[str] | None = None) -> dict[str, str]:
    request = ListGroupsRequest(states_filter=states or [], types_filter=types or [])
    response = context.run(context.coordinator.list_groups(request, 5))
    assert response.error_code == 0
    assert all(response.encode(version) for version in range(6))
    assert all(group.group_type == "classic" for group in response.groups)
    return {group.group_id: group.group_state for group in response.groups}


def test_a_stable_group_is_described_in_full() -> None:
    with Context() as context:
        ids = context.static_group(["a", "b"])
        group = context.describe()
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        assert [member.member_id for member in group.members] == ids
        first = group.members[0]
        assert (first.group_instance_id, first.client_id, first.client_host) == ("a", "client", "/127.0.0.1")
        assert (first.member_metadata, first.member_assignment) == (b"sub", ids[0].encode())


def test_while_it_rebalances_protocol_and_metadata_are_not_told() -> None:
    with Context() as context:
        (member_id,) = context.static_group(["a"])
        context.join(member_id, instance="a")
        group = context.describe()
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("CompletingRebalance", "consumer", "")
        assert [member.member_metadata for member in group.members] == [b""]


def test_a_group_that_does_not_exist_is_dead_or_not_found() -> None:
    with Context() as context:
        old, new = context.describe("nobody", 5), context.describe("nobody", 6)
        assert (old.error_code, old.error_message, old.group_state) == (0, None, "Dead")
        assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
        assert new.error_message == "Group nobody not found."
        assert context.shard.soft.memberships == {}


def test_looking_leaves_nothing_behind() -> None:
    with Context() as context:
        context.commit_offset()
        assert context.describe().group_state == "Empty"
        assert listed(context) == {"g": "Empty"}
        assert context.shard.soft.memberships == {}


@pytest.mark.parametrize("version", range(7))
def test_descriptions_can_be_sent_in_every_version(version: int) -> None:
    with Context() as context:
        context.stable_group()
        request = DescribeGroupsRequest(groups=["g", "nobody", ""])
        assert context.run(context.coordinator.describe_groups(request, version)).encode(version)


def test_all_groups_of_all_partitions_are_listed() -> None:
    with Context(partition_count=5) as context:
        context.stable_group(group="stable")
        context.join(group="new")
        context.new_member(group="forming")
        context.commit_offset(group="simple")
        assert listed(context) == {
            "stable": "Stable",
            "new": "Empty",
            "forming": "PreparingRebalance",
            "simple": "Empty",
        }


def test_lists_are_filtered_by_state_and_type_whatever_the_case() -> None:
    with Context() as context:
        context.stable_group(group="stable")
        context.commit_offset(group="simple")
        assert listed(context, ["STABLE "]) == {"stable": "Stable"}
        assert set(listed(context, ["stable", "empty"])) == {"stable", "simple"}
        assert listed(context, ["dead", "no such state"]) == {}
        assert set(listed(context, [], ["Classic"])) == {"stable", "simple"}
        assert listed(context, [], ["consumer", "share", "no such type"]) == {}
        assert set(listed(context, ["empty"], ["classic", "consumer"])) == {"simple"}


def test_the_protocol_type_is_listed_as_soon_as_it_is_known() -> None:
    with Context() as context:
        context.new_member(protocol_type="connect")
        request = ListGroupsRequest()
        (group,) = context.run(context.coordinator.list_groups(request, 5)).groups
        assert (group.protocol_type, group.group_state) == ("connect", GroupState.PREPARING_REBALANCE)


@pytest.mark.parametrize("version", range(7))
def test_empty_groups_are_described_alike_in_every_version(version: int) -> None:
    with Context() as context:
        context.commit_offset(group="simple")
        context.commit_in_transaction(group="pending")
        (member_id,) = context.stable_group(group="left")
        context.leave(member_id, group="left")
        for group, protocol_type in (("simple", ""), ("pending", ""), ("left", "consumer")):
            described = context.describe(group, version)
            assert (described.error_code, described.group_state) == (0, "Empty")
            assert (described.protocol_type, described.protocol_data) == (protocol_type, "")
            assert described.members == []


@pytest.mark.parametrize("version", range(6))
def test_empty_groups_are_listed_and_dead_ones_are_not_in_every_version(version: int) -> None:
    with Context() as context:
        context.commit_in_transaction(group="pending")
        context.commit_offset(group="deleted")
        context.run(context.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["deleted"]), 2))
        response = context.run(context.coordinator.list_groups(ListGroupsRequest(), version))
        decoded, _ = type(response).decode(memoryview(response.encode(version)), version)
        assert [(group.group_id, group.protocol_type) for group in decoded.groups] == [("pending", "")]
        assert [group.group_state for group in decoded.groups] == ["Empty" if version >= 4 else ""]
        assert [group.group_type for group in decoded.groups] == ["classic" if version >= 5 else ""]
