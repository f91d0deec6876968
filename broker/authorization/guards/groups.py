"""The guards of group membership and of lists of groups (keys 11 to 16, 42, 68, 69).

READ on the group is membership, DESCRIBE its view, DELETE its end. A member of the consumer protocol needs DESCRIBE on
each topic that it names (KIP-848); a regular expression finds only such topics (broker.handlers.k68).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import (
    GuardContext,
    Serve,
    after,
    after_in_steps,
    allowed_names,
    allows_on_cluster,
    each,
    extended,
    in_steps,
    split,
)
from gregor.broker.authorization.model import Operation, ResourceType
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.protocol.turns import Steps

DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
NULL_PROTOCOL_FROM = 7
"""Version of JoinGroup in which an error has no protocol name; before it, an empty one."""
HIDDEN_TOPICS_TEXT = "The client may not describe a topic of the group's members."


def may(broker: GuardContext, call: Call, operation: Operation, group_id: str) -> bool:
    return broker.authorizer.allows(call, operation, ResourceType.GROUP, group_id)


def join_group(broker: GuardContext, request: Any, call: Call, serve: Serve) -> Any:
    if may(broker, call, Operation.READ, request.group_id):
        return serve(request)
    name = None if call.version >= NULL_PROTOCOL_FROM else ""
    return JoinGroupResponse(error_code=DENIED, generation_id=-1, protocol_name=name, leader="", member_id="")


def heartbeat(broker: GuardContext, request: Any, call: Call, serve: Serve) -> Any:
    if may(broker, call, Operation.READ, request.group_id):
        return serve(request)
    return HeartbeatResponse(error_code=DENIED)


def leave_group(broker: GuardContext, request: Any, call: Call, serve: Serve) -> Any:
    if may(broker, call, Operation.READ, request.group_id):
        return serve(request)
    return LeaveGroupResponse(error_code=DENIED)


def sync_group(broker: GuardContext, request: Any, call: Call, serve: Serve) -> Any:
    if may(broker, call, Operation.READ, request.group_id):
        return serve(request)
    return SyncGroupResponse(error_code=DENIED)


@in_steps
def describe_groups(broker: GuardContext, request: DescribeGroupsRequest, call: Call, serve: Serve) -> Steps[Any]:
    allowed, refused = yield from split(broker, call, Operation.DESCRIBE, ResourceType.GROUP, request.groups, str)
    if not refused:
        return serve(request)
    make = DescribeGroupsResponse.DescribedGroup
    answers = yield from each(refused, lambda name: make(group_id=name, error_code=DENIED))
    if not allowed:
        return DescribeGroupsResponse(groups=answers)
    return after(serve(request.replaced(groups=allowed)), extended(groups=answers))


def list_groups(broker: GuardContext, request: ListGroupsRequest, call: Call, serve: Serve) -> Any:
    """DESCRIBE on the cluster shows all groups; else the response has those on which the client has it."""

    def hide(response: ListGroupsResponse) -> Steps[ListGroupsResponse]:
        names = [group.group_id for group in response.groups]
        visible = yield from allowed_names(
            broker, call, Operation.DESCRIBE, ResourceType.GROUP, names, logs_denial=False
        )
        return response.replaced(groups=[group for group in response.groups if group.group_id in visible])

    if allows_on_cluster(broker, call, Operation.DESCRIBE, logs_denial=False):
        return serve(request)
    return after_in_steps(broker, serve(request), hide)


@in_steps
def delete_groups(broker: GuardContext, request: DeleteGroupsRequest, call: Call, serve: Serve) -> Steps[Any]:
    allowed, refused = yield from split(broker, call, Operation.DELETE, ResourceType.GROUP, request.groups_names, str)
    if not refused:
        return serve(request)
    make = DeleteGroupsResponse.DeletableGroupResult
    answers = yield from each(dict.fromkeys(refused), lambda name: make(group_id=name, error_code=DENIED))
    if not allowed:
        return DeleteGroupsResponse(results=answers)
    return after(serve(request.replaced(groups_names=allowed)), extended(results=answers))


@in_steps
def consumer_group_heartbeat(
    broker: GuardContext, request: ConsumerGroupHeartbeatRequest, call: Call, serve: Serve
) -> Steps[Any]:
    if not may(broker, call, Operation.READ, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=DENIED)
    topics = request.subscribed_topic_names
    if topics:
        names = set(topics)
        allowed = yield from allowed_names(broker, call, Operation.DESCRIBE, ResourceType.TOPIC, names)
        if len(allowed) < len(names):
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return serve(request)


@in_steps
def consumer_group_describe(
    broker: GuardContext, request: ConsumerGroupDescribeRequest, call: Call, serve: Serve
) -> Steps[Any]:
    """A group whose members have topics that the client may not describe shows an error in place of its members."""

    def hide(response: ConsumerGroupDescribeResponse) -> Steps[ConsumerGroupDescribeResponse]:
        topics: dict[str, set[str]] = {}
        for group in response.groups:
            if topics:
                yield None
            topics[group.group_id] = _assigned_topics(group)
        names = set().union(*topics.values())
        visible = yield from allowed_names(broker, call, Operation.DESCRIBE, ResourceType.TOPIC, names)
        hidden = {
            "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "error_message": HIDDEN_TOPICS_TEXT,
            "members": [],
        }
        groups = [group if topics[group.group_id] <= visible else group.replaced(**hidden) for group in response.groups]
        return response.replaced(groups=[*groups, *answers])

    allowed, refused = yield from split(broker, call, Operation.DESCRIBE, ResourceType.GROUP, request.group_ids, str)
    make = ConsumerGroupDescribeResponse.DescribedGroup
    answers = yield from each(refused, lambda name: make(group_id=name, error_code=DENIED))
    if refused and not allowed:
        return ConsumerGroupDescribeResponse(groups=answers)
    return after_in_steps(broker, serve(request.replaced(group_ids=allowed) if refused else request), hide)


def _assigned_topics(group: ConsumerGroupDescribeResponse.DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
