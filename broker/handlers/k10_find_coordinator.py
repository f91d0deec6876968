"""FindCoordinator (key 10), versions 0 to 6: the coordinator of a group.

- 1 key type, and an error message, which is "NONE" without an error; 3 flexible; 4 many keys in one request, and no
  message without an error; 5 and 6 name coordinator types that are not served here.
- The request creates `__consumer_offsets` if it does not exist yet.
- Gap: transactional ids are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which no client retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext, NodeEndpoint

GROUP = 0
TRANSACTION = 1
MANY_KEYS_FROM = 4


@handles(ApiKey.FIND_COORDINATOR, 0, 6)
async def find_coordinator(
    broker: GroupContext, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.version >= MANY_KEYS_FROM else [request.key]
    found = []
    turns = broker.gate.turns()
    for key in keys:
        await turns.next()
        answer = FindCoordinatorResponse.Coordinator(key=key, node_id=-1, host="", port=-1)
        try:
            node_id, endpoint = await _find(broker, request.key_type, key, call)
            answer.node_id, answer.host, answer.port = node_id, endpoint.host, endpoint.port
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        found.append(answer)
    if call.version >= MANY_KEYS_FROM:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or ErrorCode(one.error_code).name,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(broker: GroupContext, key_type: int, key: str, call: Call) -> tuple[int, NodeEndpoint]:
    if key_type == TRANSACTION:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "this broker has no transactions yet; unset transactional.id",
        )
    if key_type != GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not served")
    topic = broker.metadata.topic(GROUP_METADATA_TOPIC)
    if topic is None:
        try:
            await broker.topic_creator.create(GROUP_METADATA_TOPIC)
        except KafkaError as error:
            # For every cause: clients know this error, and retry.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from None
    state = broker.metadata.partition(GROUP_METADATA_TOPIC, broker.groups.partition_for(key))
    endpoint = None if state is None else broker.endpoint_of(state.leader, call)
    if state is None or endpoint is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group's partition has no leader")
    return state.leader, endpoint
