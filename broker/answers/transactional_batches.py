"""The transactional batches of a produce request: verified with the coordinator of their transaction, then appended.

The first batch of a transaction in a partition needs it, so that a batch which arrives after the end of its transaction
does not begin another one (KIP-890): up to Produce 11 the producer has added the partition before, from 12 on this adds
it. The errors of the coordinator are shown as those that producers of the version can handle (Kafka's ReplicaManager
and AddPartitionsToTxnManager).
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING

from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import ATTRIBUTES_AT, MAGIC_AT, RECORD_BATCH_OVERHEAD, TRANSACTIONAL_BIT
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from gregor.broker.context import ProduceContext
    from gregor.replication.partition.partition import Partition
    from gregor.storage.log.log import AppendInfo
    from gregor.storage.producers.verification import VerificationGuard

ABORTABLE_FROM = 11
"""The first version of Produce whose producers know TRANSACTION_ABORTABLE."""
ADDS_FROM = 12

_PRODUCER_AT = 43
_PRODUCER = Struct(">qhi")
"""Producer id, its epoch, first sequence."""

_PASSING = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Unverified(KafkaError):
    """A partition is not part of the transaction, or its coordinator cannot be reached now."""


class TransactionalBatches:
    """Those of one request: `begin` for each partition, if `needs_coordinator` the verification, then `append`."""

    def __init__(self, broker: ProduceContext, transactional_id: str, version: int) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._version = version
        self._adds = version >= ADDS_FROM
        self._verifies = self._adds or bool(broker.config["transaction.partition.verification.enable"])
        self._producer: tuple[int, int] | None = None
        self._guards: dict[TopicPartition, VerificationGuard | None] = {}
        self._errors: dict[TopicPartition, KafkaError] = {}
        self._answer: Deferred[dict[TopicPartition, ErrorCode]] = Deferred()
        self._until_s = 0.0

    def begin(self, partition: Partition | None, records: bytes | bytearray | memoryview | None) -> None:
        """Begin with the batch for a partition. Raises KafkaError if the batches are of different producers."""
        if (
            records is None
            or len(records) < RECORD_BATCH_OVERHEAD
            or records[MAGIC_AT] != 2
            or not records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT
        ):
            return
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        if self._producer not in (None, (producer_id, epoch)):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the request has transactional records of several producers"
            )
        self._producer = producer_id, epoch
        if partition is None or not self._verifies:
            return
        key = TopicPartition(partition.topic, partition.partition)
        try:
            self._guards[key] = partition.begin_verification(producer_id, epoch, sequence, self._adds)
        except KafkaError as error:
            self._errors[key] = error

    @property
    def producer_id(self) -> int | None:
        """The producer of the batches; None without a transactional batch."""
        return None if self._producer is None else self._producer[0]

    @property
    def needs_coordinator(self) -> bool:
        """Whether the transaction is not open yet in one of the partitions."""
        return any(guard is not None for guard in self._guards.values())

    def verify_at_once(self) -> bool:
        """Verify with the coordinator, or add there, the partitions in which the transaction is not open yet. Return
        whether that is decided already; otherwise `verify` must be awaited."""
        config, loop = self._broker.config, self._broker.loop
        self._until_s = loop.time() + config["add.partitions.to.txn.retry.backoff.max.ms"] / 1000
        self._send()
        return self._is_decided()

    async def verify(self) -> None:
        """Wait until the coordinator has decided about all partitions."""
        broker = self._broker
        while not self._is_decided():
            if self._answer.done:
                # The end of the transaction before is nearly written: a repeated request costs more.
                await asyncio.sleep(broker.config["add.partitions.to.txn.retry.backoff.ms"] / 1000)
                self._send()
            else:
                await outcome_of(self._answer, broker.loop.create_future())

    def _send(self) -> None:
        assert self._producer is not None
        partitions = [key for key, guard in self._guards.items() if guard is not None]
        self._answer = self._broker.transaction_verifier.verify(
            self._transactional_id, *self._producer, partitions, not self._adds
        )

    def _is_decided(self) -> bool:
        """Return whether the coordinator has answered, and note the errors of its answer."""
        if not self._answer.done:
            return False
        errors = self._answer.result()
        ends = self._adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        if ends and self._broker.loop.time() < self._until_s:
            return False
        self._errors.update({key: self._shown(code) for key, code in errors.items() if code})
        return True

    def check(self, partition: Partition) -> None:
        """Raise the error of a partition that could not be verified."""
        if (error := self._errors.get(TopicPartition(partition.topic, partition.partition))) is not None:
            raise error

    def append(
        self, partition: Partition, records: bytes | bytearray | memoryview, now_ms: int, required_acks: int
    ) -> AppendInfo:
        """Append a batch of the request, transactional or not. Raises KafkaError as `Partition.append`."""
        key = TopicPartition(partition.topic, partition.partition)
        if key in self._guards:
            return partition.append_verified(records, now_ms, required_acks, self._guards[key])
        return partition.append(records, now_ms, required_acks)

    def _shown(self, code: ErrorCode) -> KafkaError:
        """Return an error of the coordinator as producers of this version can handle it."""
        if code == ErrorCode.TRANSACTION_ABORTABLE and self._version < ABORTABLE_FROM:
            code = ErrorCode.INVALID_TXN_STATE
        if code == ErrorCode.INVALID_TXN_STATE:
            return Unverified(code, "the partition was not added to the transaction")
        if code in _PASSING or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds):
            # Producers send the records again, and do not fetch metadata before.
            reason = f"whether the partition is part of the transaction is not known now: {code.name}"
            return Unverified(ErrorCode.NOT_ENOUGH_REPLICAS, reason)
        return Unverified(code)
