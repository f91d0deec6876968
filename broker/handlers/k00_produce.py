"""Produce (key 0), versions 0 to 13.

Each partition's records are one batch, appended under the rules of log.validate and log.prepare; the response
follows at once (acks=1), when every in-sync replica has them (acks=-1), or never (acks=0, where an error ends the
connection, as there is no other way to report it). Versions 0 to 2 carry message sets, which are converted to one batch
(records.up_conversion); a truncated one is refused as a whole, where Apache Kafka appends its beginning. Frequent plain
requests are served by gregor.broker.net.produce_fast_path instead.

A large batch whose records must be validated, compressed again or converted is prepared in slices and on a thread, and
the records for hundreds of partitions are appended in turns; the connection dispatches no other request until all are
appended, so a later request never overtakes an earlier one.

- 1 throttle time; 2 log append time; 3 batches of magic 2, transactional id; 5 log start offset; 7 zstd allowed;
  8 error messages, errors of single records; 9 flexible; 10 current leader on NOT_LEADER_OR_FOLLOWER; 13 topic ids.
- A request with a transactional id: broker.answers.transactional_batches. Until its batches are verified, the
  connection dispatches no other request. Such batches in another request get TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from gregor.broker.answers.current_leaders import current_leader, node_endpoints
from gregor.broker.answers.transactional_batches import TransactionalBatches, Unverified
from gregor.broker.jobs.maintenance import flush_to
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import ProduceRequest, ProduceResponse
from gregor.protocol.records.batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    PRODUCER_FIELDS,
    PRODUCER_ID_AT,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_BIT,
    CorruptBatch,
)
from gregor.protocol.records.compression import ZSTD
from gregor.protocol.records.message_sets import InvalidMessageSet
from gregor.protocol.records.up_conversion import NO_LIMIT, MessageTooLarge, upconvert, upconverting
from gregor.protocol.topic_names import INTERNAL_TOPICS
from gregor.protocol.turns import TURN_S, Steps
from gregor.storage.log.prepare import NeedsPreparation, PreparedBatch, prepare
from gregor.storage.log.validate import RefusedRecords

if TYPE_CHECKING:
    from gregor.broker.context import Call, ProduceContext
    from gregor.config.topic import LogConfig
    from gregor.replication.partition.partition import Partition
    from gregor.storage.log.log import Log

ADMIN_CLIENT_ID = "__admin_client"
"""The client id with which Apache Kafka permits writes to its internal topics."""

VALID_ACKS = (-1, 0, 1)
BATCHES_FROM = 3
QUICK_MESSAGE_SET_BYTES = 4 * 1024
"""Limit of the message sets that are converted at once, in less than a millisecond."""
QUICK_REQUEST_BYTES = 64 * 1024
"""Limit of the records that are validated at once, of all partitions of a request, in some milliseconds."""
QUICK_RESPONSE_PARTS = 500
"""Limit of the partitions whose answers are encoded at once, in less than a millisecond."""
MESSAGE_SET_COST = 4
"""The cost of a conversion, as a multiple of the cost of a validation."""
ZSTD_FROM = 7
RECORD_ERRORS_FROM = 8
CURRENT_LEADER_FROM = 10
TOPIC_IDS_FROM = 13

PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that are temporary: the same batch may be appended when the client sends it again."""

_EXPECTED = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that Kafka does not count as failed requests."""

_OF_THE_LOG = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""Errors with which Apache Kafka sends the start of the log, where the records are one batch: then they come from the
append, and not from the checks before it."""

Answer = ProduceResponse | Deferred[ProduceResponse | None] | None

_PartAnswer = ProduceResponse.PartitionProduceResponse
_TopicAnswer = ProduceResponse.TopicProduceResponse
_Topic = ProduceRequest.TopicProduceData
_Part = ProduceRequest.PartitionProduceData
_Slot = tuple[list[_PartAnswer], int]
"""The answers of a topic, and the position of a partition among them, where its answer will be."""


def _is_short(response: ProduceResponse) -> bool:
    topics = response.responses
    parts = len(topics[0].partition_responses) if len(topics) == 1 else _parts_count(topics)
    return parts <= QUICK_RESPONSE_PARTS


def _parts_count(topics: Sequence[_TopicAnswer]) -> int:
    return sum(1 + len(topic.partition_responses) for topic in topics)


@handles(ApiKey.PRODUCE, 0, 13, pipelined=True, is_short=_is_short)
def produce(broker: ProduceContext, request: ProduceRequest, call: Call) -> Answer:
    appends = _Appends(broker, request, call)
    transactional_id = request.transactional_id
    return appends.run() if transactional_id is None else appends.run_in_transaction(transactional_id)


_REFUSALS = {
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the request has transactional records of several producers",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1 (all), 0 or 1",
}


class _Commits(Deferred["ProduceResponse | None"]):
    """Completed with the response once the records of every partition are committed, and flushed where they must be."""

    __slots__ = ("_errors", "_response", "_waiting")

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[int, _PartAnswer] = {}
        self._errors: dict[int, ErrorCode] = {}
        """The errors of partitions whose records are in the log, by the identity of their answers."""
        self._response: ProduceResponse | None = None

    def wait_for(self, partition: Partition, offset: int, answer: _PartAnswer) -> None:
        self._waiting[id(answer)] = answer
        partition.leadership.when_committed(offset, partial(self._decide, id(answer), answer))

    def wait_for_flush(
        self, broker: ProduceContext, partition: Partition, log: Log, offset: int, answer: _PartAnswer
    ) -> None:
        """Wait for a flush of the partition's log on the flush thread (flush.messages). If the log is replaced by its
        copy in another data folder before its flush, that of the copy counts."""
        key = -id(answer)
        self._waiting[key] = answer

        async def flush() -> None:
            flushed, error = log, ErrorCode.NONE
            while True:
                try:
                    await flush_to(flushed, offset, broker.background, broker.now_ms())
                except KafkaError as failure:
                    if partition.log is not None and partition.log is not flushed:
                        flushed = partition.log
                        continue
                    error = failure.code
                break
            self._decide(key, answer, error)

        broker.background.spawn(flush())

    def _decide(self, key: int, answer: _PartAnswer, error: ErrorCode) -> None:
        if self._waiting.pop(key, None) is not None and error:
            self._errors.setdefault(id(answer), error)
        if not self._waiting and self._response is not None:
            self.complete(self._with_errors(self._response))

    def answer(self, loop: asyncio.AbstractEventLoop, response: ProduceResponse, timeout_ms: int) -> Answer:
        """Return the response, or the Deferred of it until all records are committed. A partition that is not after
        `timeout_ms` gets REQUEST_TIMED_OUT, though its records stay in the log.
        """
        if not self._waiting:
            return self._with_errors(response)
        self._response = response
        timer = loop.call_later(timeout_ms / 1000, self._time_out)
        self.then(lambda _: timer.cancel())
        return self

    def _time_out(self) -> None:
        self._errors.update((id(answer), ErrorCode.REQUEST_TIMED_OUT) for answer in self._waiting.values())
        self._waiting.clear()
        assert self._response is not None
        self.complete(self._with_errors(self._response))

    def _with_errors(self, response: ProduceResponse) -> ProduceResponse:
        errors = self._errors
        if not errors:
            return response
        return response.replaced(
            responses=[
                topic.replaced(
                    partition_responses=[
                        answer.replaced(error_code=errors[id(answer)]) if id(answer) in errors else answer
                        for answer in topic.partition_responses
                    ]
                )
                for topic in response.responses
            ]
        )


class _Appends:
    """The appends of one request."""

    __slots__ = (
        "_broker",
        "_call",
        "_commits",
        "_deferred",
        "_failed",
        "_leaders",
        "_postponed",
        "_quick_bytes",
        "_refusal",
        "_request",
        "_transactional",
        "_unverified",
    )

    def __init__(self, broker: ProduceContext, request: ProduceRequest, call: Call) -> None:
        self._broker = broker
        self._request = request
        self._call = call
        self._commits: _Commits | None = None
        self._failed = False
        self._leaders: list[int] = []
        self._quick_bytes = QUICK_REQUEST_BYTES
        self._refusal = ErrorCode.NONE
        self._deferred: deque[tuple[_Topic, list[_PartAnswer], list[bytearray | None]]] = deque()
        """Topics for whose last partitions there was no time yet: the answers for the first ones, and copies of the
        records for the last ones."""
        self._postponed: deque[tuple[_Topic, _Slot, Partition, bytes, bool]] = deque()
        self._transactional: TransactionalBatches | None = None
        self._unverified: TransactionalBatches | None = None
        """The same until the coordinator has answered."""

    def run(self) -> Answer:
        request = self._request
        if request.acks not in VALID_ACKS:
            self._refusal = ErrorCode.INVALID_REQUIRED_ACKS
        until_s = time.monotonic() + TURN_S
        topics: list[_TopicAnswer] = []
        for position, topic in enumerate(request.topic_data):
            answers: list[_PartAnswer] = []
            for data in topic.partition_data:
                if self._unverified is not None or ((topics or answers) and time.monotonic() > until_s):
                    # The first append to a partition needs some 40 us, and there may be thousands of partitions.
                    self._defer(position, answers)
                    break
                answers.append(self._try(topic, data, answers, len(answers)))
            if self._deferred:
                break
            topics.append(_TopicAnswer(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        if not self._postponed and not self._deferred:
            return self._answer(topics)
        self._call.connection.hold()
        outcome: Deferred[ProduceResponse | None] = Deferred()
        # A task of the broker: records that a client sent before it left are appended all the same.
        self._broker.background.spawn(self._append_postponed(topics, outcome))
        return outcome

    def run_in_transaction(self, transactional_id: str) -> Answer:
        """Append the records of a request with a transactional id, its transactional batches once they are verified."""
        if self._request.acks not in VALID_ACKS:
            return self.run()  # which refuses all: no transaction may begin
        broker, is_admin = self._broker, self._call.client_id == ADMIN_CLIENT_ID
        batches = self._transactional = TransactionalBatches(broker, transactional_id, self._call.version)
        try:
            for topic in self._request.topic_data:
                for data in topic.partition_data:
                    partition = broker.partition_of(topic.name, topic.topic_id, data.index)
                    if partition is not None and partition.topic in INTERNAL_TOPICS and not is_admin:
                        partition = None  # its records are refused: it must not become part of the transaction
                    batches.begin(partition, data.records)
        except KafkaError as error:
            self._refusal = error.code
        else:
            if batches.producer_id is not None:
                call = self._call
                broker.producer_clients.note(batches.producer_id, call.client_id, call.connection.host)
            if batches.needs_coordinator and not batches.verify_at_once():
                self._unverified = batches
        return self.run()

    def _defer(self, position: int, answers: list[_PartAnswer]) -> None:
        """Keep copies of the records of this topic from the first partition without an answer on, and of all topics
        after it."""
        for topic in islice(self._request.topic_data, position, None):
            parts = islice(topic.partition_data, len(answers), None)
            copies = [None if (records := data.records) is None else bytearray(records) for data in parts]
            self._deferred.append((topic, answers, copies))
            answers = []

    def _try(self, topic: _Topic, data: _Part, answers: list[_PartAnswer], position: int) -> _PartAnswer:
        """Return the answer for a partition: a preliminary one if it is postponed."""
        try:
            if self._refusal:
                raise KafkaError(self._refusal, _REFUSALS[self._refusal])
            return self._append_or_postpone(topic, data, answers, position)
        except KafkaError as error:
            return self._refused(topic, data.index, data.records, error)

    def _append_or_postpone(self, topic: _Topic, data: _Part, answers: list[_PartAnswer], position: int) -> _PartAnswer:
        broker, version, index = self._broker, self._call.version, data.index
        partition = broker.partition_of(topic.name, topic.topic_id, index)
        if partition is None:
            raise unknown_partition(broker, topic, index, version)
        if partition.topic in INTERNAL_TOPICS and self._call.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by the broker alone")
        if self._transactional is not None:
            self._transactional.check(partition)
        records = data.records
        is_message_set = version < BATCHES_FROM and (not records or records[MAGIC_AT : MAGIC_AT + 1] != b"\2")
        if not records:
            if is_message_set:  # an empty set is legal in Kafka of all releases, and appends nothing
                return _PartAnswer(index=index, base_offset=-1)
            raise KafkaError(ErrorCode.INVALID_RECORD, "no records for the partition")
        log = partition.log
        if is_message_set:
            batch = self._quickly_converted(records, log)
            if batch is None:
                return self._postpone(topic, (answers, position), index, partition, records, is_message_set=True)
            records = batch
        elif len(records) >= RECORD_BATCH_OVERHEAD and records[MAGIC_AT] == 2:
            attributes = records[ATTRIBUTES_AT + 1]
            if version < ZSTD_FROM and attributes & COMPRESSION_MASK == ZSTD:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
            if attributes & TRANSACTIONAL_BIT and self._transactional is None:
                raise KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "records of a transaction need a transactional id in the request",
                )
        if log is not None and log.is_special:
            self._quick_bytes -= len(records)
            if self._quick_bytes < 0:
                return self._postpone(topic, (answers, position), index, partition, records)
        try:
            return self._append(partition, index, records)
        except NeedsPreparation:
            return self._postpone(topic, (answers, position), index, partition, records)

    def _quickly_converted(self, records: bytes | bytearray | memoryview, log: Log | None) -> bytes | bytearray | None:
        """Return a small message set as a batch, None if it is not small."""
        self._quick_bytes -= MESSAGE_SET_COST * len(records)
        if self._quick_bytes < 0 or len(records) > QUICK_MESSAGE_SET_BYTES:
            return None
        try:
            batch = upconvert(records, max_decompressed_bytes=2 * QUICK_MESSAGE_SET_BYTES)
        except CorruptBatch:  # or only large
            return None
        return None if log is not None and len(batch) > log.config.max_message_bytes else batch

    def _postpone(
        self,
        topic: _Topic,
        slot: _Slot,
        index: int,
        partition: Partition,
        records: bytes | bytearray | memoryview,
        *,
        is_message_set: bool = False,
    ) -> _PartAnswer:
        self._postponed.append((topic, slot, partition, bytes(records), is_message_set))
        return _PartAnswer(index=index, base_offset=-1)

    def _note_refused(self, topic: _Topic, index: int, records: bytes | bytearray | memoryview | None) -> None:
        if not records or len(records) < RECORD_BATCH_OVERHEAD or records[MAGIC_AT] != 2:
            return
        producer_id, epoch, sequence = PRODUCER_FIELDS.unpack_from(records, PRODUCER_ID_AT)
        name = topic.name or self._broker.metadata.topic_name(topic.topic_id)
        if producer_id >= 0 and name:
            self._broker.replicas.note_refused((name, index), producer_id, epoch, sequence)

    def _append(self, partition: Partition, index: int, records: bytes | bytearray | memoryview) -> _PartAnswer:
        broker, acks = self._broker, self._request.acks
        if self._transactional is None:
            info = partition.append(records, broker.now_ms(), acks)
        else:
            info = self._transactional.append(partition, records, broker.now_ms(), acks)
        if info.duplicate:
            broker.replicas.traffic.repeats.duplicate(self._call.client_id)
        answer = _PartAnswer(
            index=index,
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )
        log = partition.log
        if log is not None and log.offsets.unflushed_messages >= log.config.flush_messages:
            self._pending().wait_for_flush(broker, partition, log, info.last_offset + 1, answer)
        if acks == -1 and not partition.commits_at_once:
            self._pending().wait_for(partition, info.last_offset + 1, answer)
        return answer

    def _pending(self) -> _Commits:
        if self._commits is None:
            self._commits = _Commits()
        return self._commits

    async def _append_postponed(self, topics: list[_TopicAnswer], outcome: Deferred[ProduceResponse | None]) -> None:
        try:
            if self._unverified is not None:
                await self._unverified.verify()
            turns = self._broker.gate.turns()
            while self._deferred:
                topic, answers, copies = self._deferred.popleft()
                for data, records in zip(islice(topic.partition_data, len(answers), None), copies, strict=True):
                    await turns.next()
                    kept = _Part(index=data.index, records=records)
                    answers.append(self._try(topic, kept, answers, len(answers)))
                await turns.next()
                topics.append(_TopicAnswer(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
            while self._postponed:
                await self._append_next()
                await asyncio.sleep(0)  # many small ones add up to a long time
            answer = self._answer(topics)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                outcome.cancel()
            else:
                outcome.fail(error)
            raise
        finally:
            self._call.connection.end_hold()
        if isinstance(answer, Deferred):
            answer.then(lambda commits: outcome.complete(commits.value))
        else:
            outcome.complete(answer)

    async def _append_next(self) -> None:
        """Append the next postponed records. Nothing refers to them when this returns, as the response may wait for
        long."""
        topic, (answers, position), partition, records, is_message_set = self._postponed.popleft()
        background, index = self._broker.background, answers[position].index
        try:
            log = partition.log
            if log is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            async with background.large_batches:
                work = _prepared(records, is_message_set, log.config, self._broker.now_ms())
                batch = await background.run_steps(work)
                answers[position] = self._append(partition, index, batch)
        except KafkaError as error:
            answers[position] = self._refused(topic, index, records, error)

    def _refused(
        self, topic: _Topic, index: int, records: bytes | bytearray | memoryview | None, error: KafkaError
    ) -> _PartAnswer:
        """Count and note the refusal of a partition's records, and return the answer."""
        self._failed = True
        if error.code in PASSING and not isinstance(error, Unverified):
            self._note_refused(topic, index, records)
        self._broker.replicas.traffic.repeats.refused(self._call.client_id, error.code)
        partition = self._broker.partition_of(topic.name, topic.topic_id, index)
        if partition is not None:
            partition.traffic.produce_requests += 1  # an append counts itself when it has succeeded
            if error.code not in _EXPECTED:
                partition.traffic.failed_produce_requests += 1
        answer = _PartAnswer(index=index, base_offset=-1, error_code=error.code, error_message=error.message or None)
        if (
            partition is not None
            and error.code in _OF_THE_LOG
            and not isinstance(error, Unverified)
            and _is_one_batch(records)
        ):
            answer.log_start_offset = partition.log_start_offset
        if isinstance(error, RefusedRecords) and self._call.version >= RECORD_ERRORS_FROM:
            answer.record_errors = [
                ProduceResponse.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=message)
                for at, message in error.record_errors
            ]
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self._call.version >= CURRENT_LEADER_FROM:
            name = topic.name or self._broker.metadata.topic_name(topic.topic_id) or ""
            leader = current_leader(self._broker, name, index, ProduceResponse.LeaderIdAndEpoch)
            self._leaders.append(leader.leader_id)
            answer.current_leader = leader
        return answer

    def _answer(self, topics: list[_TopicAnswer]) -> Answer:
        request, call = self._request, self._call
        if request.acks == 0:
            if self._failed:
                call.connection.fail("a Produce request with acks=0 failed, and it has no other answer")
            return None
        response = ProduceResponse(responses=topics)
        if self._leaders:
            response.node_endpoints = node_endpoints(self._broker, call, self._leaders, ProduceResponse.NodeEndpoint)
        if self._commits is None:
            return response
        return self._commits.answer(self._broker.loop, response, request.timeout_ms)


def _is_one_batch(records: bytes | bytearray | memoryview | None) -> bool:
    """Return whether the records are one batch of magic 2, by its header."""
    return (
        records is not None
        and len(records) >= RECORD_BATCH_OVERHEAD
        and records[MAGIC_AT] == 2
        and int.from_bytes(records[LENGTH_AT : LENGTH_AT + 4]) + LOG_OVERHEAD == len(records)
    )


def _prepared(records: bytes, is_message_set: bool, config: LogConfig, now_ms: int) -> Steps[PreparedBatch]:
    if not is_message_set:
        return (yield from prepare(records, config, now_ms))
    stays_plain = config.compression_type in ("producer", "uncompressed")
    try:
        batch = yield from upconverting(
            records,
            PreparedBatch(),
            max_message_bytes=config.max_message_bytes,
            max_plain_bytes=config.max_message_bytes if stays_plain else NO_LIMIT,
        )
    except MessageTooLarge as error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except InvalidMessageSet as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return (yield from prepare(batch, config, now_ms))


def unknown_partition(
    broker: ProduceContext, topic: ProduceRequest.TopicProduceData, index: int, version: int
) -> KafkaError:
    """Return why this broker has no replica of the partition: another broker leads it, or it is unknown."""
    name = topic.name
    if version >= TOPIC_IDS_FROM or topic.topic_id != ZERO_UUID:
        found = broker.metadata.topic_name(topic.topic_id)
        if found is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        name = found
    if broker.metadata.partition(name, index) is not None:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads the partition")
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {name}-{index}")
