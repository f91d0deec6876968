"""TxnOffsetCommit (key 28), versions 0 to 6: a group's positions, which count once the producer's transaction commits.

- 2 leader epochs; 3 generation, member and static member are checked, so that of two members with the same partitions
  only the present owner commits (KIP-447), flexible; 4 TRANSACTION_ABORTABLE; 5 adds the group's partition of
  `__consumer_offsets` to the transaction, which before AddOffsetsToTxn did (KIP-890); 6 (Kafka 4.4) topic ids
  (KIP-1319).
- Positions of partitions that do not exist are refused one by one, the others stored.
- The transaction is verified with its coordinator before its first append to the group's partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gregor.broker.answers.transactional_batches import Verification
from gregor.broker.answers.unknown_partitions import separate_unknown, with_refused
from gregor.broker.context import TransactionContext
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.partition.replica_manager import ReplicaManager

ABORTABLE_FROM = 4
ADDS_PARTITION_FROM = 5
TOPIC_IDS_FROM = 6
NO_SEQUENCE = -1


class ReplicaTransactions(TransactionContext, Protocol):
    """Transactions, and the replicas of this broker."""

    @property
    def replicas(self) -> ReplicaManager: ...


@handles(ApiKey.TXN_OFFSET_COMMIT, 0, 6, changes=True, eager=True)
async def txn_offset_commit(
    broker: ReplicaTransactions, request: TxnOffsetCommitRequest, call: Call
) -> TxnOffsetCommitResponse:
    known, refused = await separate_unknown(
        request.topics,
        broker.metadata,
        broker.gate.turns(),
        by_id=call.version >= TOPIC_IDS_FROM,
        topic_answer=TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic,
        partition_answer=TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
    )
    if not known:
        return TxnOffsetCommitResponse(topics=refused)

    request = request.replaced(topics=known)

    async def verify(partition: int) -> object:
        return await _verify(broker, request, call.version, partition)

    verifies = call.version >= ADDS_PARTITION_FROM or broker.config["transaction.partition.verification.enable"]
    response = await broker.groups.commit_transactional_offsets(request, call.version, verify if verifies else None)
    return response.replaced(topics=with_refused(response.topics, refused))


async def _verify(broker: ReplicaTransactions, request: TxnOffsetCommitRequest, version: int, index: int) -> object:
    """Return the guard for the append, None where the transaction has begun in the partition. Raises KafkaError."""
    replica = broker.replicas.get(GROUP_METADATA_TOPIC, index)
    if replica is None or not replica.is_leader:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    adds = version >= ADDS_PARTITION_FROM
    guard = replica.begin_verification(request.producer_id, request.producer_epoch, NO_SEQUENCE, adds)
    if guard is None:
        return None
    partition = TopicPartition(GROUP_METADATA_TOPIC, index)
    verification = Verification(
        broker, request.transactional_id, request.producer_id, request.producer_epoch, [partition], adds=adds
    )
    error = (await verification.errors())[partition]
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        error = ErrorCode.INVALID_TXN_STATE
    if error:
        raise KafkaError(error)
    return guard
