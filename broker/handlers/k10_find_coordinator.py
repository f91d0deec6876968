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
    from gregor.broker.context import Call, TransactionContext

GROUP = 0
TRANSACTION = 1
MANY_KEYS_FROM = 4

_Answer = FindCoordinatorResponse.Coordinator


class _Coordinator(Protocol):
    def partition_for(self, key: str, /) -> int: ...


@handles(ApiKey.FIND_COORDINATOR, 0, 6)
async def find_coordinator(
    broker: TransactionContext, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.version >= MANY_KEYS_FROM else [request.key]
    found = []
    turns = broker.gate.turns()
    refusal: KafkaError | None = None
    if keys:
        # Once for all keys: where the topic cannot be created, each attempt may last seconds.
        try:
            topic, coordinator = await _topic_of(broker, request.key_type)
        except KafkaError as error:
            refusal = error
    for key in keys:
        await turns.next()
        found.append(_find(broker, topic, coordinator, key, call) if refusal is None else _refused(key, refusal))
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


async def _topic_of(broker: TransactionContext, key_type: int) -> tuple[str, _Coordinator]:
    """Return the internal topic of a kind of coordinators, and this broker's one; create the topic if it does not
    exist yet. Raises KafkaError."""
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
    return topic, coordinator


def _find(broker: TransactionContext, topic: str, coordinator: _Coordinator, key: str, call: Call) -> _Answer:
    state = broker.metadata.partition(topic, coordinator.partition_for(key))
    endpoint = None if state is None else broker.endpoint_of(state.leader, call)
    if state is None or endpoint is None:
        message = f"the partition of {key!r} in {topic} has no leader"
        return _refused(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))
    return _Answer(key=key, node_id=state.leader, host=endpoint.host, port=endpoint.port)


def _refused(key: str, error: KafkaError) -> _Answer:
    return _Answer(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message or None)
