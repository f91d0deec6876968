"""ElectLeaders (key 43), versions 0 to 2: elect the preferred leader, or any replica of a partition without a leader.

- 1 the type of election (0 preferred, 1 unclean) and an error for the whole response, which every partition had before;
  2 flexible.
- Null means all partitions; the response omits those that need no election then. It is sent when this broker's metadata
  names the new leader, or with REQUEST_TIMED_OUT after `timeout_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call

PREFERRED, UNCLEAN = 0, 1
ERROR_FROM = 1

_Result = ElectLeadersResponse.ReplicaElectionResult
_Partition = ElectLeadersResponse.PartitionResult


def _requested(broker: AdminContext, request: ElectLeadersRequest) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topic_partitions is None:
        return ((topic.name, sorted(topic.partitions)) for topic in broker.metadata.topics())
    return ((topic.topic, topic.partitions) for topic in request.topic_partitions)


@handles(ApiKey.ELECT_LEADERS, 0, 2, changes=True)
async def elect_leaders(broker: AdminContext, request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    kind = request.election_type if call.version >= ERROR_FROM else PREFERRED
    everything = request.topic_partitions is None
    turns = broker.gate.turns()
    keys: dict[TopicPartition, None] = {}
    for name, indexes in _requested(broker, request):
        await turns.next()
        for index in indexes:
            await turns.next()
            keys[TopicPartition(name, index)] = None
    results: dict[TopicPartition, KafkaError | None]
    error = ErrorCode.NONE
    try:
        if kind not in (PREFERRED, UNCLEAN):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election of type {kind}")
        results = await broker.admin.replicas.elect_leaders(keys, request.timeout_ms, unclean=kind == UNCLEAN)
    except KafkaError as refusal:
        results = dict.fromkeys(keys, refusal)
        if refusal.code != ErrorCode.NOT_CONTROLLER:
            error = refusal.code
    topics: dict[str, _Result] = {}
    for (name, index), result in results.items():
        await turns.next()
        if everything and not error and result is not None and result.code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        answer = _Partition(partition_id=index)
        if result is not None:
            answer.error_code, answer.error_message = result.code, result.message or None
        topics.setdefault(name, _Result(topic=name)).partition_result.append(answer)
    response = ElectLeadersResponse(replica_election_results=list(topics.values()))
    if call.version >= ERROR_FROM:
        response.error_code = error
    return response
