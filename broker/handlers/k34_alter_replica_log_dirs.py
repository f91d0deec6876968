"""AlterReplicaLogDirs (key 34), versions 0 to 2: move partitions to other data folders of this broker (KIP-113).

- 2 flexible.
- The response is sent when the moves have begun; DescribeLogDirs shows them until they are over. A partition that is in
  the folder already is no error, and ends a move of it to another folder.
- LOG_DIR_NOT_FOUND for a path that is none of log.dirs, KAFKA_STORAGE_ERROR for a failed folder, and while any folder
  has failed. REPLICA_NOT_AVAILABLE for a partition without a replica on this broker: the folder is stored for the time
  when it gets one, as in Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, LogDirsContext

Answer = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2, changes=True)
async def alter_replica_log_dirs(
    broker: LogDirsContext, request: AlterReplicaLogDirsRequest, call: Call
) -> AlterReplicaLogDirsResponse:
    turns = broker.gate.turns()
    # A partition that is named with several folders moves to the last of them, and is in the response once.
    wanted: dict[str, dict[int, str]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            await turns.next()
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, folder.path))
    results = []
    for name, paths in wanted.items():
        answers = []
        for index, path in paths.items():
            await turns.next()
            answers.append(Answer(partition_index=index, error_code=_move(broker, name, index, path)))
        results.append(AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=name, partitions=answers))
    return AlterReplicaLogDirsResponse(results=results)


def _move(broker: LogDirsContext, topic: str, index: int, path: str) -> ErrorCode:
    try:
        broker.mover.move(topic, index, broker.mover.folder(path))
    except KafkaError as error:
        if error.code == ErrorCode.REPLICA_NOT_AVAILABLE and broker.metadata.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return error.code
    return ErrorCode.NONE
