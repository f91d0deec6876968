"""Authorized operations as bit fields, for requests that want to know them (KIP-430).

A bit is `1 << code of the operation` (Kafka's AclOperation). Without an authorizer: all operations on the resource.
Kafka: AuthHelper.authorizedOperations.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

from gregor.broker.authorization.model import CLUSTER_NAME, Operation, ResourceType
from gregor.protocol.messages import ConsumerGroupDescribeResponse, DescribeGroupsResponse

if TYPE_CHECKING:
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.context import Call, GroupContext

NOT_REQUESTED = -(2**31)
ResponseT = TypeVar("ResponseT", DescribeGroupsResponse, ConsumerGroupDescribeResponse)


def _bits(*operations: Operation) -> int:
    return reduce(lambda bits, operation: bits | 1 << operation, operations, 0)


TOPIC_OPERATIONS = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS = _bits(
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
)
CLUSTER_OPERATIONS = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)

_OPERATIONS = {
    ResourceType.TOPIC: TOPIC_OPERATIONS,
    ResourceType.GROUP: GROUP_OPERATIONS,
    ResourceType.CLUSTER: CLUSTER_OPERATIONS,
}


def authorized_operations(authorizer: Authorizer | None, call: Call, resource: ResourceType, name: str) -> int:
    """Return the operations that the client may do on a resource."""
    bits = _OPERATIONS[resource]
    if authorizer is None:
        return bits
    allowed = 0
    for operation in Operation:
        bit = bits & 1 << operation
        if bit and authorizer.allows(call, operation, resource, name, logs_denial=False):
            allowed |= bit
    return allowed


def cluster_operations(authorizer: Authorizer | None, call: Call) -> int:
    """Return the operations that the client may do on the cluster: none are shown without DESCRIBE."""
    if authorizer is not None and not authorizer.allows(call, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(authorizer, call, ResourceType.CLUSTER, CLUSTER_NAME)


async def with_group_operations(broker: GroupContext, call: Call, response: ResponseT) -> ResponseT:
    """Return a description of groups with the operations that the client may do on those that were found."""
    turns = broker.gate.turns()
    groups: list[Any] = []
    for group in response.groups:
        await turns.next()
        if not group.error_code:
            operations = authorized_operations(broker.authorizer, call, ResourceType.GROUP, group.group_id)
            group = group.replaced(authorized_operations=operations)
        groups.append(group)
    return response.replaced(groups=groups)
