"""A transaction coordinator in a CoordinatorContext, and leaders that are a list: `markers.hold`, `markers.write`."""

import asyncio
from collections.abc import Collection
from typing import Any, NamedTuple

from gregor.broker.jobs.turns import LoopGate
from gregor.coordinator.result import Record
from gregor.coordinator.txn import ports
from gregor.coordinator.txn.config import TransactionConfig
from gregor.coordinator.txn.coordinator import TransactionCoordinator
from gregor.coordinator.txn.records import decode_record, encoder
from gregor.coordinator.txn.shard import TransactionShard
from gregor.coordinator.txn.states import TransactionState
from gregor.coordinator.txn.transaction import Transaction
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.topic_partition import TopicPartition
from tests.coordinator.machinery import Call, CoordinatorContext

FIRST_PRODUCER_ID = 1000
TIMEOUT_MS = 60_000


class Sent(NamedTuple):
    marker: EndTransaction
    partitions: frozenset[TopicPartition]
    written: ports.Markers


class Markers:
    """The leaders of all partitions: they write a marker at once, unless they are held."""

    def __init__(self) -> None:
        self.held = False
        self.sent: list[Sent] = []
        self.waiting: list[Sent] = []

    def send(self, marker: EndTransaction, partitions: Collection[TopicPartition]) -> ports.Markers:
        sent = Sent(marker, frozenset(partitions), ports.Markers(partitions))
        self.sent.append(sent)
        if self.held:
            self.waiting.append(sent)
        else:
            sent.written.complete(None)
        return sent.written

    def hold(self) -> None:
        self.held = True

    def write(self) -> None:
        self.held = False
        waiting, self.waiting = self.waiting, []
        for sent in waiting:
            sent.written.complete(None)

    def refuse(self, code: ErrorCode = ErrorCode.TRANSACTION_COORDINATOR_FENCED) -> None:
        waiting, self.waiting = self.waiting, []
        for sent in waiting:
            sent.written.fail(KafkaError(code))


class Context(CoordinatorContext[TransactionCoordinator]):
    """See the module. Messages have the newest version of the protocol of `transaction_version` unless one is given."""

    def __init__(
        self, partition_count: int = 1, load: bool = True, transaction_version: int = 2, **config: int
    ) -> None:
        self.markers = Markers()
        self.config = TransactionConfig(**{"end_wait_ms": 0, **config})
        self.transaction_version = transaction_version
        self.next_producer_id = FIRST_PRODUCER_ID
        self.producer_id_errors: list[ErrorCode] = []
        self.producer_ids_arrive = asyncio.Event()
        self.producer_ids_arrive.set()
        super().__init__(partition_count, leader_epoch=3, load=load)

    def _make(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.config,
            self.log,
            self.log,
            self._new_producer_id,
            self.markers,
            self.now_ms,
            LoopGate(),
            transaction_version=lambda: self.transaction_version,
            partition_count=self.partition_count,
        )

    async def _new_producer_id(self) -> int:
        await self.producer_ids_arrive.wait()
        if self.producer_id_errors:
            raise KafkaError(self.producer_id_errors.pop(0))
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def write_markers(self) -> None:
        """As `markers.write`, on the loop."""

        async def write() -> None:
            self.markers.write()

        self.run(write())
        self.settle()

    # --- state

    @property
    def shard(self) -> TransactionShard:
        """The shard of the first, mostly the only partition."""
        return self.coordinator.shard(0)

    def transaction(self, transactional_id: str = "t") -> Transaction:
        partition = self.coordinator.partition_for(transactional_id)
        return self.coordinator.shard(partition).state.transactions[transactional_id]

    def state(self, transactional_id: str = "t") -> TransactionState:
        partition = self.coordinator.partition_for(transactional_id)
        return self.coordinator.shard(partition).state.state_of(transactional_id)

    def written(self) -> list[Record]:
        """The records of the log."""
        return [record for key, value in self.log.records() if (record := decode_record(key, value)) is not None]

    def states_written(self) -> list[TransactionState]:
        return [record.value.state for record in self.written()]

    def replayed_state(self) -> dict[str, Transaction]:
        """Hard state as another coordinator would build it from the log."""
        transactions: dict[str, Transaction] = {}
        for record in self.written():
            if record.value is None:
                transactions.pop(record.key, None)
            else:
                transactions[record.key] = record.value
        return transactions

    def write(self, transactional_id: str, transaction: Transaction | None) -> None:
        """Put a record into the log as another coordinator may have done."""
        encode = encoder(lambda: self.transaction_version)
        self.log.append(0, [encode(Record(transactional_id, transaction))])

    # --- requests

    def start_init(
        self,
        transactional_id: str = "t",
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        timeout_ms: int = TIMEOUT_MS,
        version: int = 5,
    ) -> Call[InitProducerIdResponse]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        return self.call(self.coordinator.init_producer_id(request, version))

    def init(self, *arguments: Any, **options: Any) -> tuple[int, int]:
        """The producer id and epoch of a successful InitProducerId."""
        response = self.start_init(*arguments, **options).response
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
        return response.producer_id, response.producer_epoch

    def start_add(
        self, producer_id: int, producer_epoch: int, *numbers: int, transactional_id: str = "t", version: int = 3
    ) -> Call[Any]:
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="topic", partitions=list(numbers))]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=producer_epoch,
                v3_and_below_topics=topics,
            )
        else:
            transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        return self.call(self.coordinator.add_partitions(request, version))

    def start_add_here(
        self, producer_id: int, producer_epoch: int, *numbers: int, transactional_id: str = "t"
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """The request of a partition leader on the same broker."""

        async def start() -> Deferred[dict[TopicPartition, ErrorCode]]:
            return self.coordinator.add_or_verify(
                transactional_id, producer_id, producer_epoch, partitions(*numbers), verify_only=False
            )

        outcome = self.run(start())
        self.settle()
        return outcome

    def add(self, *arguments: Any, **options: Any) -> ErrorCode:
        """The error of all partitions."""
        response = self.start_add(*arguments, **options).response
        topics = response.results_by_topic_v3_and_below or response.results_by_transaction[0].topic_results
        (error,) = {partition.partition_error_code for topic in topics for partition in topic.results_by_partition}
        return ErrorCode(error)

    def start_verify(
        self, producer_id: int, producer_epoch: int, *numbers: int, transactional_id: str = "t"
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        async def start() -> Deferred[dict[TopicPartition, ErrorCode]]:
            return self.coordinator.add_or_verify(
                transactional_id, producer_id, producer_epoch, partitions(*numbers), verify_only=True
            )

        return self.run(start())

    def verify(self, *arguments: int, **options: Any) -> list[ErrorCode]:
        """The errors of the partitions, in their order."""
        return list(self.start_verify(*arguments, **options).result().values())

    def add_offsets(
        self, producer_id: int, producer_epoch: int, *, transactional_id: str = "t", version: int = 4
    ) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, group_id="g"
        )
        return self.call(self.coordinator.add_offsets(request, version, 7)).error

    def start_end(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool = True,
        transactional_id: str = "t",
        version: int | None = None,
    ) -> Call[EndTxnResponse]:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )
        version = (5 if self.transaction_version >= 2 else 4) if version is None else version
        return self.call(self.coordinator.end_transaction(request, version))

    def end(self, *arguments: Any, **options: Any) -> tuple[int, int]:
        """The producer id and epoch that a successful EndTxn answers with."""
        response = self.start_end(*arguments, **options).response
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
        return response.producer_id, response.producer_epoch

    def describe(self, transactional_id: str = "t") -> DescribeTransactionsResponse.TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (described,) = self.call(self.coordinator.describe(request)).response.transaction_states
        return described

    def list(self, **filters: Any) -> ListTransactionsResponse:
        return self.call(self.coordinator.list(ListTransactionsRequest(**filters), 2)).response


def partitions(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("topic", number) for number in numbers)
