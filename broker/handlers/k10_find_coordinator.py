"""FindCoordinator (key 10), versions 0 to 6: the coordinator of a group, or of a transactional id.

- 1 key type, and an error message, which is "NONE" without an error; 3 flexible; 4 many keys in one request, and no
  message without an error; 5 TRANSACTION_ABORTABLE; 6 coordinators of share groups, which are not served here.
- The request creates `__consumer_offsets` or `__transaction_state` if it does not exist yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from gregor.broker.context import Call, NodeEndpoint, TransactionContext

GROUP = 0
TRANSACTION = 1
MANY_KEYS_FROM = 4


class _Coordinator(Protocol):
    def partition_for(self, key: str, /) -> int: ...


@handles(ApiKey.FIND_COORDINATOR, 0, 6)
async def find_coordinator(
    broker: TransactionContext, request: FindCoordinatorRequest, call: Call
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


async def _find(broker: TransactionContext, key_type: int, key: str, call: Call) -> tuple[int, NodeEndpoint]:
    coordinator: _Coordinator
    if key_type == GROUP:
        topic, coordinator = GROUP_METADATA_TOPIC, broker.groups
    elif key_type == TRANSACTION:
        topic, coordinator = TRANSACTION_STATE_TOPIC, broker.transactions
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not served")
    if broker.metadata.topic(topic) is None:
        try:
            await broker.topic_creator.create(topic)
        except KafkaError as error:
            # For every cause: clients know this error, and retry.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from None
    state = broker.metadata.partition(topic, coordinator.partition_for(key))
    endpoint = None if state is None else broker.endpoint_of(state.leader, call)
    if state is None or endpoint is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {key!r} in {topic} has no leader")
    return state.leader, endpoint
