"""The transaction coordinator of a broker: what its request handlers call.

Methods have messages of `protocol.messages` as arguments and results; errors are in the responses, where clients expect
them. Authorization, quotas and the existence of topics are the caller's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from gregor.coordinator.partitioner import partition_of
from gregor.coordinator.ports import LogLoader, LogWriter
from gregor.coordinator.result import Result
from gregor.coordinator.runtime import CoordinatorRuntime, RecordFormat, RuntimeSettings
from gregor.coordinator.txn.config import TransactionConfig
from gregor.coordinator.txn.endings import NEEDS_PRODUCER_ID
from gregor.coordinator.txn.ports import MarkerSender
from gregor.coordinator.txn.queries import Filters, refused
from gregor.coordinator.txn.records import decode_record, encoder, is_independent
from gregor.coordinator.txn.shard import TransactionShard
from gregor.coordinator.txn.transaction import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
)
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import ITEMS_PER_STEP, Gate, Turns

if TYPE_CHECKING:
    import asyncio

FIRST_BATCHED_ADD = 4
"""From this version on AddPartitionsToTxn comes from partition leaders, for clients of the new protocol."""
FIRST_END_WITH_EPOCH = 5
"""The version from which on EndTxn has a client of the new protocol."""


class TransactionCoordinator:
    """Serves the transactional ids of the partitions of `__transaction_state` that this broker leads. Lives on the
    event loop."""

    def __init__(
        self,
        config: TransactionConfig,
        writer: LogWriter,
        loader: LogLoader,
        producer_ids: Callable[[], Awaitable[int]],
        markers: MarkerSender,
        clock_ms: Callable[[], int],
        gate: Gate,
        *,
        transaction_version: Callable[[], int],
        partition_count: int = 50,
    ) -> None:
        """`clock_ms` is the wall clock; `transaction_version` the finalised feature. Requests about many transactional
        ids proceed in turns of `gate`."""
        self._config = config
        self._producer_ids = producer_ids
        self._clock_ms = clock_ms
        self._gate = gate
        self.partition_count = partition_count
        self._closed = False
        self._runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            lambda context: TransactionShard(config, context, markers, producer_ids, transaction_version),
            RecordFormat(encoder(transaction_version), decode_record, is_independent),
            writer,
            loader,
            clock_ms,
            gate,
            RuntimeSettings(TRANSACTION_STATE_TOPIC, config.commit_timeout_ms, config.load_buffer_bytes),
        )

    # --- partitions

    def partition_for(self, transactional_id: str) -> int:
        """The partition that a transactional id belongs to. `partition_count` must be that of the existing topic."""
        return partition_of(transactional_id, self.partition_count)

    def on_partition_count(self, count: int) -> None:
        """The topic has this many partitions."""
        self.partition_count = count

    def on_elected(self, partition: int, leader_epoch: int) -> asyncio.Task[None] | None:
        """This broker leads the partition now: its transactional ids are loaded. Returns the load, which can be
        awaited."""
        return None if self._closed else self._runtime.elect(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This broker leads the partition no more; pending requests get NOT_COORDINATOR, markers are cancelled."""
        self._runtime.resign(partition, leader_epoch)

    def close(self) -> None:
        """Answer pending and later requests with an error on which clients find another coordinator."""
        self._closed = True
        self._runtime.close()

    def shard(self, partition: int) -> TransactionShard:
        """The transactional ids of a partition, to read from. Raises KafkaError while they are not loaded."""
        return self._runtime.shard(partition)

    def _partition_of(self, transactional_id: str | None) -> int:
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        return self.partition_for(transactional_id)

    # --- producers

    async def init_producer_id(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        """For a request with a transactional id. While a transaction of the producer before is aborted, the error is
        CONCURRENT_TRANSACTIONS."""
        try:
            partition = self._partition_of(request.transactional_id)
            self._check_init(request)
            response: InitProducerIdResponse = await self._run_with_new_id(
                partition, lambda new_id, shard, now: shard.producers.init(request, new_id, now)
            )
        except KafkaError as error:
            return InitProducerIdResponse(error_code=error.code, producer_epoch=NO_PRODUCER_EPOCH)
        return response.replaced(error_code=_known(ErrorCode(response.error_code), fenced_known=version >= 4))

    def _check_init(self, request: InitProducerIdRequest) -> None:
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id without epoch, or an epoch without id")
        if not 0 < request.transaction_timeout_ms <= self._config.max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"the transaction timeout of {request.transaction_timeout_ms} ms is not between 1 and "
                f"transaction.max.timeout.ms, {self._config.max_timeout_ms}",
            )

    async def _run_with_new_id(
        self, partition: int, operation: Callable[[int | None, TransactionShard, int], Result]
    ) -> Any:
        """Run an operation; run it again with a new producer id if it needs one."""
        return await self._outcome_with_new_id(
            partition, operation, self._runtime.start(partition, partial(operation, None))
        )

    async def _outcome_with_new_id(
        self,
        partition: int,
        operation: Callable[[int | None, TransactionShard, int], Result],
        started: Deferred[Any],
    ) -> Any:
        response = await self._runtime.outcome_of(started)
        while response is NEEDS_PRODUCER_ID:
            new_id = await self._producer_ids()
            response = await self._runtime.run(partition, partial(operation, new_id))
        return response

    # --- partitions of transactions

    async def add_partitions(self, request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
        """Up to v3 a request is of a client about one transaction, from v4 on of a partition leader about many."""
        if version < FIRST_BATCHED_ADD:
            identity = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            topics = request.v3_and_below_topics
            error = await self._error_of(
                self._start_add(request.v3_and_below_transactional_id, identity, _partitions(topics), 0)
            )
            error = _known(error, fenced_known=version >= 2)
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=_results(topics, dict.fromkeys(_partitions(topics), error))
            )
        turns = self._gate.turns()
        started: list[Deferred[dict[TopicPartition, ErrorCode]]] = []
        for transaction in request.transactions:
            await turns.next()
            started.append(
                self.add_or_verify(
                    transaction.transactional_id,
                    transaction.producer_id,
                    transaction.producer_epoch,
                    _partitions(transaction.topics),
                    verify_only=transaction.verify_only,
                    waits=False,
                )
            )
        results = []
        for transaction, outcome in zip(request.transactions, started, strict=True):
            errors = await self._runtime.outcome_of(outcome)
            results.append(
                AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id, topic_results=_results(transaction.topics, errors)
                )
            )
        return AddPartitionsToTxnResponse(results_by_transaction=results)

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
        waits: bool = True,
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Serve one transaction of AddPartitionsToTxn v4 and later without a coroutine. The Deferred never fails.

        The end of the transaction before must not be awaited (`waits`) in a request with others: it would delay them,
        and every later request of the same leader. That leader repeats the one transaction.
        """
        identity = ProducerIdAndEpoch(producer_id, producer_epoch)
        outcome: Deferred[dict[TopicPartition, ErrorCode]] = Deferred()

        def decided(answer: Deferred[Any]) -> None:
            if isinstance(answer.error, KafkaError):
                outcome.complete(dict.fromkeys(partitions, answer.error.code))
            elif answer.error is not None:
                outcome.fail(answer.error)
            elif verify_only:
                outcome.complete(answer.result())
            else:
                outcome.complete(dict.fromkeys(partitions, answer.result()))

        if verify_only:
            pending = self._start(
                transactional_id,
                lambda shard, _now: shard.producers.verify(transactional_id, identity, partitions),
            )
        else:
            pending = self._start_add(transactional_id, identity, partitions, EPOCH_PER_TRANSACTION, waits=waits)
        pending.then(decided)
        return outcome

    def _start_add(
        self,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        *,
        waits: bool = True,
    ) -> Deferred[ErrorCode]:
        return self._start(
            transactional_id,
            lambda shard, now: shard.producers.add(
                transactional_id, identity, partitions, client_version, now, waits=waits
            ),
        )

    def _start(self, transactional_id: str, operation: Callable[[TransactionShard, int], Result]) -> Deferred[Any]:
        try:
            return self._runtime.start(self._partition_of(transactional_id), operation)
        except KafkaError as error:
            refused_at_once: Deferred[Any] = Deferred()
            refused_at_once.fail(error)
            return refused_at_once

    async def _error_of(self, pending: Deferred[ErrorCode]) -> ErrorCode:
        try:
            return await self._runtime.outcome_of(pending)
        except KafkaError as error:
            return error.code

    async def add_offsets(
        self, request: AddOffsetsToTxnRequest, version: int, offsets_partition: int
    ) -> AddOffsetsToTxnResponse:
        """`offsets_partition` is the partition of `__consumer_offsets` to which the group belongs."""
        identity = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        partitions = [TopicPartition(GROUP_METADATA_TOPIC, offsets_partition)]
        error = await self._error_of(self._start_add(request.transactional_id, identity, partitions, 0))
        return AddOffsetsToTxnResponse(error_code=_known(error, fenced_known=version >= 2))

    # --- end

    async def end_transaction(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        """Answered once the decision is committed. From v5 on the response has the next producer id and epoch."""
        client_version = EPOCH_PER_TRANSACTION if version >= FIRST_END_WITH_EPOCH else 0
        try:
            # By the old protocol the end of a transaction that has ended already is confirmed at once.
            self._runtime.check_current()
            response: EndTxnResponse = await self._run_with_new_id(
                self._partition_of(request.transactional_id),
                lambda new_id, shard, now: shard.endings.end(request, client_version, new_id, now),
            )
        except KafkaError as error:
            return EndTxnResponse(error_code=error.code)
        return response.replaced(error_code=_known(ErrorCode(response.error_code), fenced_known=version >= 2))

    async def end_new_protocol(self) -> None:
        """Abort the open transactions of clients of the new protocol, before the feature is downgraded, and wait until
        their end is committed. Those of partitions that move meanwhile are left to the next coordinator, which can end
        them at any level. Raises KafkaError, after all others have ended, if a partition loads or a record cannot be
        written."""
        turns = self._gate.turns()
        errors: list[KafkaError] = []
        started: list[tuple[int, str, Deferred[Any]]] = []
        try:
            for partition in range(self.partition_count):
                await self._start_ends(partition, started, errors, turns)
            for partition, transactional_id, ended in started:
                await turns.next()
                with _kept(errors):
                    await self._outcome_with_new_id(partition, partial(_end_new_protocol, transactional_id), ended)
        finally:
            for _, _, ended in started:
                ended.cancel()
        confirmations = [
            self._runtime.start(partition, lambda shard, _now: shard.confirm_ends())
            for partition in range(self.partition_count)
        ]
        for confirmed in confirmations:
            with _kept(errors):
                await self._runtime.outcome_of(confirmed)
        if errors:
            raise errors[0]

    async def _start_ends(
        self,
        partition: int,
        started: list[tuple[int, str, Deferred[Any]]],
        errors: list[KafkaError],
        turns: Turns,
    ) -> None:
        """Begin the abort of the transactions of one partition; none waits for the end of another."""
        with _kept(errors):
            for transactional_id in self._runtime.shard(partition).queries.transactional_ids():
                await turns.next()
                operation = partial(_end_new_protocol, transactional_id, None)
                ended = self._runtime.start(partition, operation)
                if not ended.done or ended.error is not None or ended.value is not None:
                    started.append((partition, transactional_id, ended))

    # --- administration

    async def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        """Each transactional id has its own error."""
        turns = self._gate.turns()
        states = []
        for transactional_id in request.transactional_ids:
            await turns.next()
            states.append(await self._describe(transactional_id))
        return DescribeTransactionsResponse(transaction_states=states)

    async def _describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        try:
            described: DescribeTransactionsResponse.TransactionState = await self._runtime.run(
                self._partition_of(transactional_id),
                lambda shard, _now: Result(shard.queries.describe(transactional_id)),
            )
        except KafkaError as error:
            return refused(transactional_id, error.code)
        return described

    async def list(self, request: ListTransactionsRequest, version: int) -> ListTransactionsResponse:
        """The transactional ids of all partitions of this broker. Filters that a version does not have are empty."""
        turns = self._gate.turns()
        response = ListTransactionsResponse(transaction_states=[])
        try:
            if self._closed:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            filters = Filters(request)
            response.unknown_state_filters = filters.unknown_states
            for partition in self._runtime.loaded():
                await self._add_listed(response, partition, filters, turns)
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)
        return response

    async def _add_listed(
        self, response: ListTransactionsResponse, partition: int, filters: Filters, turns: Turns
    ) -> None:
        """Add the transactional ids of one partition; none if this broker does not lead it any more."""
        before = len(response.transaction_states)
        try:
            transactional_ids = self._runtime.shard(partition).queries.transactional_ids()
            for first in range(0, len(transactional_ids), ITEMS_PER_STEP):
                await turns.next()
                some = transactional_ids[first : first + ITEMS_PER_STEP]
                queries = self._runtime.shard(partition).queries
                response.transaction_states.extend(queries.list(some, filters, self._clock_ms()))
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            del response.transaction_states[before:]


_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


def _partitions(topics: Iterable[_Topic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _results(
    topics: Iterable[_Topic], errors: dict[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=errors[TopicPartition(topic.name, partition)]
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def _end_new_protocol(transactional_id: str, new_id: int | None, shard: TransactionShard, now_ms: int) -> Result:
    return shard.end_new_protocol(transactional_id, new_id, now_ms)


@contextmanager
def _kept(errors: list[KafkaError]) -> Iterator[None]:
    """Add a KafkaError to the list instead of raising it, unless another broker coordinates the partition now."""
    try:
        yield
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_COORDINATOR:
            errors.append(error)


def _known(error: ErrorCode, *, fenced_known: bool) -> ErrorCode:
    """The error as a client of that version knows it: PRODUCER_FENCED was INVALID_PRODUCER_EPOCH once (KIP-588)."""
    if error is ErrorCode.PRODUCER_FENCED and not fenced_known:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
