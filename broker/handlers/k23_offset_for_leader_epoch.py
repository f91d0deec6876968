"""OffsetForLeaderEpoch (key 23), versions 0 to 4: the end of an epoch in the leader's log (KIP-101, KIP-320).

- 1 the epoch itself in the response; 2 current leader epoch; 3 replica id; 4 flexible.
- A consumer that reads past that end after a leader change has read records that no longer exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from gregor.replication.partition.offset_lookup import epoch_end_offset

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4)
def offset_for_leader_epoch(
    broker: DataContext, request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    return broker.gate.start(_answer(broker, request))


def _answer(
    broker: DataContext, request: OffsetForLeaderEpochRequest
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics = []
    for topic in request.topics:
        yield None
        answers = []
        for wanted in topic.partitions:
            yield None
            answer = OffsetForLeaderEpochResponse.EpochEndOffset(partition=wanted.partition)
            partition = broker.partition_of(topic.topic, ZERO_UUID, wanted.partition)
            try:
                if partition is None:
                    known = broker.metadata.partition(topic.topic, wanted.partition) is not None
                    raise KafkaError(
                        ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                answer.leader_epoch, answer.end_offset = epoch_end_offset(
                    partition, wanted.leader_epoch, current_leader_epoch=wanted.current_leader_epoch
                )
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)
