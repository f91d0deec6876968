"""The transactional batches of a produce request: verified with the coordinator of their transaction, then appended.

The first batch of a transaction in a partition needs it, so that a batch which arrives after the end of its transaction
does not begin another one (KIP-890): up to Produce 11 the producer has added the partition before, from 12 on this adds
it. The errors of the coordinator are shown as those that producers of the version can handle (Kafka's ReplicaManager
and AddPartitionsToTxnManager).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import (
    ATTRIBUTES_AT,
    MAGIC_AT,
    PRODUCER_FIELDS,
    PRODUCER_ID_AT,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_BIT,
)
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from gregor.broker.context import ProduceContext, VerifiedPartitions
    from gregor.config.broker import BrokerConfig
    from gregor.replication.partition.partition import Partition
    from gregor.storage.log.log import AppendInfo
    from gregor.storage.producers.verification import VerificationGuard

ABORTABLE_FROM = 11
"""The first version of Produce whose producers know TRANSACTION_ABORTABLE."""
ADDS_FROM = 12

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


class VerifyingContext(Protocol):
    """The parts of the broker that a verification uses."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def transaction_verifier(self) -> VerifiedPartitions: ...


class Verification:
    """Partitions that the coordinator of a transaction verifies or, if `adds`, makes part of it.

    While the end of the transaction before is not written, a coordinator on another broker answers at once with
    CONCURRENT_TRANSACTIONS, so that no other transaction is delayed; the addition is repeated, but not for long.
    """

    def __init__(
        self,
        broker: VerifyingContext,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._partitions = partitions
        self._adds = adds
        self._until_s = broker.loop.time() + broker.config["add.partitions.to.txn.retry.backoff.max.ms"] / 1000
        self._answer = self._send()

    def _send(self) -> Deferred[dict[TopicPartition, ErrorCode]]:
        return self._broker.transaction_verifier.verify(
            self._transactional_id, self._producer_id, self._producer_epoch, self._partitions, not self._adds
        )

    def errors_at_once(self) -> dict[TopicPartition, ErrorCode] | None:
        """Return an error or NONE for each partition; None while that is not decided."""
        if not self._answer.done:
            return None
        errors = self._answer.result()
        ends = self._adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        return None if ends and self._broker.loop.time() < self._until_s else errors

    async def errors(self) -> dict[TopicPartition, ErrorCode]:
        """Wait until the coordinator has decided about all partitions."""
        while (errors := self.errors_at_once()) is None:
            if self._answer.done:
                # The end of the transaction before is nearly written: a request at once costs more.
                await asyncio.sleep(self._broker.config["add.partitions.to.txn.retry.backoff.ms"] / 1000)
                self._answer = self._send()
            else:
                await outcome_of(self._answer, self._broker.loop.create_future())
        return errors


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
        self._verification: Verification | None = None

    def begin(self, partition: Partition | None, records: bytes | bytearray | memoryview | None) -> None:
        """Begin with the batch for a partition. Raises KafkaError if the batches are of different producers."""
        if (
            records is None
            or len(records) < RECORD_BATCH_OVERHEAD
            or records[MAGIC_AT] != 2
            or not records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT
        ):
            return
        producer_id, epoch, sequence = PRODUCER_FIELDS.unpack_from(records, PRODUCER_ID_AT)
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
        assert self._producer is not None
        partitions = [key for key, guard in self._guards.items() if guard is not None]
        self._verification = Verification(
            self._broker, self._transactional_id, *self._producer, partitions, adds=self._adds
        )
        errors = self._verification.errors_at_once()
        if errors is None:
            return False
        self._note(errors)
        return True

    async def verify(self) -> None:
        """Wait until the coordinator has decided about all partitions."""
        if self._verification is not None:
            self._note(await self._verification.errors())

    def _note(self, errors: dict[TopicPartition, ErrorCode]) -> None:
        self._errors.update({key: self._shown(code) for key, code in errors.items() if code})

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
