"""CreatePartitions (key 37), versions 0 to 3: add partitions to topics. Keys then map to other partitions than before.

- The controller serves it; other brokers respond with NOT_CONTROLLER for each topic.
- The response is sent when this broker knows the leaders of the new partitions, or with REQUEST_TIMED_OUT after
  `timeout_ms`.
- 2 flexible; 3 THROTTLING_QUOTA_EXCEEDED above controller_mutation_rate (KIP-599); older versions are throttled.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gregor.broker.quotas.mutations import change_quota, throttled_by
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call

QUOTA_ERROR_FROM = 3


@handles(ApiKey.CREATE_PARTITIONS, 0, 3, changes=True)
async def create_partitions(
    broker: AdminContext, request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse:
    if not broker.controller.is_active:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsResponse.CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NOT_CONTROLLER)
                for name in dict.fromkeys(topic.name for topic in request.topics)
            ]
        )
    limit = TimeLimit(request.timeout_ms)
    quota = change_quota(broker.quotas, call, QUOTA_ERROR_FROM)
    turns = broker.gate.turns()
    named: Counter[str] = Counter()
    for topic in request.topics:
        await turns.next()
        named[topic.name] += 1
    answers: dict[str, CreatePartitionsResponse.CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        await turns.next()
        refusal: dict[str, Any] = {}
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "named twice")
            await broker.admin.create_partitions(
                topic.name,
                topic.count,
                None if topic.assignments is None else [one.broker_ids for one in topic.assignments],
                limit,
                validate_only=request.validate_only,
                count_changes=None if quota is None else quota.record,
            )
        except KafkaError as error:
            refusal = {"error_code": error.code, "error_message": error.message or None}
        answers[topic.name] = CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name, **refusal)
    return throttled_by(quota, CreatePartitionsResponse(results=list(answers.values())), call)
