"""ConsumerGroupHeartbeat (key 68), versions 0 to 1: a member of a consumer group joins, stays or leaves (KIP-848).

- 1 subscription by a regular expression, and the client makes its member id (KIP-1082).
- UNSUPPORTED_VERSION unless the finalised group.version is at least 1 and group.coordinator.rebalance.protocols names
  consumer; the API is not advertised then. A client that was connected before a downgrade gets this error.
- A regular expression finds only the topics that the client may describe.
- COORDINATOR_NOT_AVAILABLE while the controller has not sent this broker the topics of the cluster: members would lose
  their partitions otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gregor.broker.answers.visible_topics import describable_topics
from gregor.broker.groups.protocols import serves_consumer_groups
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.broker.context import Call, ConsumerGroupContext
    from gregor.broker.registry import Renewal
    from gregor.protocol.deferred import Deferred


def _is_short(response: ConsumerGroupHeartbeatResponse) -> bool:
    assignment = response.assignment
    return assignment is None or len(assignment.topic_partitions) <= ITEMS_PER_STEP


def _renewal(
    broker: ConsumerGroupContext,
    request: ConsumerGroupHeartbeatRequest,
    call: Call,
    response: ConsumerGroupHeartbeatResponse,
) -> Renewal | None:
    if response.error_code:
        return None
    renew = broker.groups.consumer_heartbeat_renewal(request, call.client_id, call.client_host)
    if renew is None:
        return None
    features, metadata = broker.features, broker.metadata
    finalized = features.finalized  # another one may not serve consumer groups
    return lambda: features.finalized is finalized and metadata.is_informed and renew()


@handles(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    0,
    1,
    changes=True,
    eager=True,
    repeats=True,
    is_short=_is_short,
    renewal=_renewal,
)
def consumer_group_heartbeat(
    broker: ConsumerGroupContext, request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
    if not serves_consumer_groups(broker):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not broker.metadata.is_informed:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    visible = None if broker.authorizer is None else partial(describable_topics, broker.authorizer, call)
    return broker.groups.consumer_group_heartbeat(request, call.client_id, call.client_host, call.version, visible)
