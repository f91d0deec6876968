"""DescribeGroups (v0 to v6) and ListGroups (v0 to v5): reading groups without a change.

DescribeGroups v6 answers GROUP_ID_NOT_FOUND where older versions show a group in state Dead (KIP-1043). ListGroups v4
filters by state, v5 by type (KIP-518, KIP-848). For DescribeGroups a consumer group does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gregor.coordinator.group.group import Group
from gregor.coordinator.group.soft_state import SoftState
from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeGroupsResponse, ListGroupsResponse

CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"

_DescribedGroup = DescribeGroupsResponse.DescribedGroup
_DescribedMember = DescribeGroupsResponse.DescribedGroupMember


class Queries:
    """Reads hard and soft state of one shard."""

    def __init__(self, groups: Mapping[str, Group], soft: SoftState) -> None:
        self._groups = groups
        self._soft = soft

    def describe(self, group_id: str, version: int) -> _DescribedGroup:
        """Describe one group; protocol and metadata only while it is Stable, when they are final."""
        group = self._groups.get(group_id)
        if group is not None and group.consumer is not None:
            return _not_found(group_id, version, "is not a classic group")
        membership = self._soft.find(group_id)
        if membership is None:
            return _not_found(group_id, version, "not found")
        protocol = membership.protocol if membership.state is GroupState.STABLE else None
        return _DescribedGroup(
            group_id=group_id,
            group_state=membership.state.value,
            protocol_type=membership.protocol_type or "",
            protocol_data=protocol or "",
            members=[
                _DescribedMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol is None else member.protocols[protocol],
                    member_assignment=member.assignment,
                )
                for member in membership.members.values()
            ],
        )

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def members_count(self, group_id: str) -> int:
        """Return how many members a group of either protocol has; 0 if there is no such group."""
        group = self._groups.get(group_id)
        if group is not None and group.consumer is not None:
            return len(group.consumer.members)
        membership = self._soft.find(group_id)
        return 0 if membership is None else len(membership.members)

    def list(
        self, group_ids: Iterable[str], states: Iterable[str], types: Iterable[str]
    ) -> list[ListGroupsResponse.ListedGroup]:
        """Those of the groups that exist, and are in one of the states and of one of the types, if any are given; upper
        and lower case are the same."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        listed = []
        for group_id in group_ids:
            group = self._groups.get(group_id)
            if group is None:
                continue
            consumer = group.consumer
            group_type = CLASSIC_TYPE if consumer is None else CONSUMER_TYPE
            if wanted_types and group_type not in wanted_types:
                continue
            state = self._soft.state(group_id).value if consumer is None else consumer.state.value
            if wanted_states and state.lower() not in wanted_states:
                continue
            membership = self._soft.memberships.get(group_id)
            protocol_type = group.protocol_type if membership is None else membership.protocol_type
            listed.append(
                ListGroupsResponse.ListedGroup(
                    group_id=group_id,
                    protocol_type=protocol_type or "",
                    group_state=state,
                    group_type=group_type,
                )
            )
        return listed


def _not_found(group_id: str, version: int, reason: str) -> _DescribedGroup:
    """The description of a group that is not a classic one; before v6 it is shown as Dead."""
    if version < 6:
        return _DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    return _DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id[:1000]} {reason}.",
    )
