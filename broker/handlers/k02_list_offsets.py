"""ListOffsets (key 2), versions 0 to 11: the offset at a time, or at one of the special times below.

- -1 latest, -2 earliest; from 7 on -3, the record with the largest timestamp (KIP-734); from 8 on -4, the earliest on
  this broker's disk; 9: -5, the latest in tiered storage and 11: -6, the first not yet there: this broker has no tiered
  storage, so both are unknown (-1).
- The latest offset is the high watermark, or for isolation level read_committed the last stable offset. A record at or
  above it is not found, by its time or as that with the largest timestamp.
- While a new leader does not know the high watermark, a request for the latest offset, or for a time that is not
  found below the known high watermark, gets OFFSET_NOT_AVAILABLE (KIP-207).
- Any replica serves debugging tools (replica id -2), up to its log end offset.
- 0: several offsets, at which segments begin that were last written before the requested time, and the end.
- 1 one offset, by the records' own times; 2 isolation level; 4 leader epochs; 5 OFFSET_NOT_AVAILABLE, for which
  earlier versions get LEADER_NOT_AVAILABLE; 6 flexible; 10 timeout.
- No record at or after the requested time: offset -1 and timestamp -1, no error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.replication.partition.offset_lookup import CONSUMER, end_offset, hides_committed

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext
    from gregor.protocol.turns import Steps
    from gregor.replication.partition.partition import Partition
    from gregor.storage.log.log import Log

LEADER_EPOCHS_FROM = 4
NOT_AVAILABLE_FROM = 5
RECORD_TIMES_FROM = 1
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1
_UNKNOWN = (-1, -1, -1)

_Answer = ListOffsetsResponse.ListOffsetsPartitionResponse


@handles(ApiKey.LIST_OFFSETS, 0, 11)
def list_offsets(
    broker: DataContext, request: ListOffsetsRequest, call: Call
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    begun = broker.gate.start(_begin(broker, request, call))
    if isinstance(begun, Awaitable):
        return _rest(begun, broker, call.version)
    response, searches = begun
    return _after(searches, broker, response, call.version) if searches else response


async def _rest(
    begun: Awaitable[tuple[ListOffsetsResponse, _Searches]], broker: DataContext, version: int
) -> ListOffsetsResponse:
    response, searches = await begun
    return await _after(searches, broker, response, version)


def _begin(
    broker: DataContext, request: ListOffsetsRequest, call: Call
) -> Generator[None, None, tuple[ListOffsetsResponse, _Searches]]:
    """Make the response, without the offsets that need a search."""
    topics = []
    searches: _Searches = []
    named: Counter[TopicPartitionKey] = Counter()
    for topic in request.topics:
        yield None
        for wanted in topic.partitions:
            named[topic.name, wanted.partition_index] += 1
            yield None
    for topic in request.topics:
        yield None
        answers: list[_Answer] = []
        for wanted in topic.partitions:
            yield None
            index = wanted.partition_index
            try:
                if named[topic.name, index] > 1 and call.version >= RECORD_TIMES_FROM:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "named twice")
                partition = broker.partition_of(topic.name, ZERO_UUID, index)
                if partition is None:
                    raise KafkaError(_why_absent(broker, topic.name, index))
                if call.version < RECORD_TIMES_FROM:
                    offsets = _segment_offsets(broker, partition, wanted, request.replica_id)
                    answers.append(_Answer(partition_index=index, old_style_offsets=offsets))
                    continue
                found = _find(partition, wanted, request, call.version)
                if isinstance(found, _Search):
                    searches.append((found, answers, len(answers)))
                    found = _UNKNOWN  # until the search is done
                answers.append(_found(index, found, call.version))
            except KafkaError as error:
                answers.append(_refused(index, error, call.version))
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics), searches


class _Search:
    """A search in the batches of a log, which runs in slices (gregor.storage.log.search)."""

    __slots__ = ("_end_offset", "_may_hide", "_work")

    def __init__(self, work: Steps[tuple[int, int, int] | None], end_offset: int, may_hide: bool) -> None:
        self._work = work
        self._end_offset = end_offset
        self._may_hide = may_hide

    async def run(self, broker: DataContext) -> tuple[int, int, int]:
        found = await broker.background.search(self._work)
        if found is not None and found[1] < self._end_offset:
            return found
        if self._may_hide:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return _UNKNOWN


_Searches = list[tuple[_Search, list[_Answer], int]]
"""Searches, each with the answers of its topic and the position of its own among them."""


async def _after(
    searches: _Searches, broker: DataContext, response: ListOffsetsResponse, version: int
) -> ListOffsetsResponse:
    turns = broker.gate.turns()
    for search, answers, position in searches:
        await turns.next()
        index = answers[position].partition_index
        try:
            answers[position] = _found(index, await search.run(broker), version)
        except KafkaError as error:
            answers[position] = _refused(index, error, version)
    return response


def _found(index: int, found: tuple[int, int, int], version: int) -> _Answer:
    timestamp, offset, epoch = found
    leader_epoch = epoch if version >= LEADER_EPOCHS_FROM else -1
    return _Answer(partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch)


def _refused(index: int, error: KafkaError, version: int) -> _Answer:
    code = error.code
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_FROM:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return _Answer(partition_index=index, error_code=code)


def _why_absent(broker: DataContext, topic: str, index: int) -> ErrorCode:
    if broker.metadata.partition(topic, index) is not None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _find(
    partition: Partition, wanted: ListOffsetsRequest.ListOffsetsPartition, request: ListOffsetsRequest, version: int
) -> tuple[int, int, int] | _Search:
    """Return (timestamp, offset, leader epoch), or the search for it. Raises KafkaError."""
    time = wanted.timestamp
    if time < 0 and version < _SINCE_VERSION.get(time, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    # This also checks that this broker leads, in the epoch that the client knows.
    end = end_offset(
        partition,
        current_leader_epoch=wanted.current_leader_epoch,
        replica_id=request.replica_id,
        read_committed=request.isolation_level == READ_COMMITTED,
    )
    log = partition.log
    if log is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    may_hide = request.replica_id == CONSUMER and hides_committed(partition)
    if time == LATEST:
        if may_hide:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, end, partition.leader_epoch
    if time in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, _epoch_at(log, log.log_start_offset)
    if time in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _UNKNOWN
    work = log.offset_of_max_timestamp() if time == MAX_TIMESTAMP else log.offset_for_timestamp(time)
    return _Search(work, end, may_hide)


def _segment_offsets(
    broker: DataContext, partition: Partition, wanted: ListOffsetsRequest.ListOffsetsPartition, replica_id: int
) -> list[int]:
    """Return the offsets of version 0, the greatest first (Kafka's legacyFetchOffsetsForTimestamp). Raises
    KafkaError."""
    if wanted.timestamp < EARLIEST:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    end = end_offset(partition, replica_id=replica_id)
    log = partition.log
    if log is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    offsets = log.offsets_before(wanted.timestamp, wanted.max_num_offsets, broker.now_ms())
    if offsets and offsets[0] > end:
        offsets = [end, *(offset for offset in offsets if offset <= end)]
    return offsets


def _epoch_at(log: Log, offset: int) -> int:
    epoch = log.epochs.epoch_for_offset(offset)
    return -1 if epoch is None else epoch
