"""DeleteRecords (key 21), versions 0 to 2: removes the records below an offset, -1 for all that are committed.

- 2 flexible.
- The response has the partition's low watermark and is sent when every live replica has this log start offset, or with
  REQUEST_TIMED_OUT after `timeout_ms`; the deletion is effective all the same. When the response is sent, the new log
  start offset survives a crash of this broker.
- Whole segments below it are removed by the next retention run.
- POLICY_VIOLATION on a topic that is only compacted; INVALID_TOPIC_EXCEPTION for internal topics, as in Apache Kafka.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gregor.broker.answers.current_leaders import why_absent
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from gregor.protocol.topic_names import INTERNAL_TOPICS
from gregor.replication.partition.delete_records import delete_records_before, low_watermark

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext
    from gregor.replication.partition.partition import Partition

NO_LOW_WATERMARK = -1

Answer = DeleteRecordsResponse.DeleteRecordsPartitionResult


@handles(ApiKey.DELETE_RECORDS, 0, 2, changes=True)
async def delete_records(broker: DataContext, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    begun: dict[str, list[_Wait | Answer]] = {}
    waits: list[_Wait] = []
    # The response names each topic and partition once; of several offsets for one the last counts.
    wanted: dict[str, dict[int, int]] = {}
    turns = broker.gate.turns()
    for topic in request.topics:
        await turns.next()
        offsets = wanted.setdefault(topic.name, {})
        for one in topic.partitions:
            await turns.next()
            offsets[one.partition_index] = one.offset
    for name, offsets in wanted.items():
        await turns.next()
        begun[name] = []
        for index, offset in offsets.items():
            await turns.next()
            try:
                wait = _begin(broker, name, index, offset)
                begun[name].append(wait)
                waits.append(wait)
            except KafkaError as error:
                refused = Answer(partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=error.code)
                begun[name].append(refused)
    if waits:
        # Before the wait for the followers: records that return after a crash of this broker are not deleted.
        await broker.write_log_start_offsets()
        await _all_reached(broker.loop, waits, request.timeout_ms / 1000)
    topics = []
    for name, of_topic in begun.items():
        await turns.next()
        answers = []
        for result in of_topic:
            await turns.next()
            answers.append(result.answer() if isinstance(result, _Wait) else result)
        topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=name, partitions=answers))
    return DeleteRecordsResponse(topics=topics)


class _Wait:
    """The wait of one partition for its low watermark."""

    __slots__ = ("_error", "_index", "_low_watermark", "_target", "partition")

    def __init__(self, index: int, partition: Partition, target: int) -> None:
        self._index = index
        self.partition = partition
        self._target = target
        self._error = ErrorCode.REQUEST_TIMED_OUT
        self._low_watermark = NO_LOW_WATERMARK

    def try_complete(self) -> bool:
        """Return whether the answer is decided."""
        partition = self.partition
        try:
            partition.leadership.leader_log()
        except KafkaError as error:
            self._error, self._low_watermark = error.code, NO_LOW_WATERMARK
            return True
        self._low_watermark = low_watermark(partition)
        if self._low_watermark < self._target:
            return False
        self._error = ErrorCode.NONE
        return True

    def answer(self) -> Answer:
        """Return the answer: REQUEST_TIMED_OUT until it is decided."""
        return Answer(partition_index=self._index, low_watermark=self._low_watermark, error_code=self._error)


def _begin(broker: DataContext, topic: str, index: int, offset: int) -> _Wait:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by the broker alone")
    partition = broker.partition_of(topic, ZERO_UUID, index)
    if partition is None:
        raise KafkaError(why_absent(broker, topic, index))
    return _Wait(index, partition, delete_records_before(partition, offset))


async def _all_reached(loop: asyncio.AbstractEventLoop, waits: list[_Wait], timeout_s: float) -> None:
    """Wait until every partition is decided, or the time is over."""
    left = [wait for wait in waits if not wait.try_complete()]
    if not left:
        return
    done: Deferred[None] = Deferred()

    def moved() -> None:
        left[:] = [wait for wait in left if not wait.try_complete()]
        if not left:
            done.complete(None)

    watched = [(wait.partition, wait.partition.delayed.watch(moved)) for wait in left]
    try:
        async with asyncio.timeout(timeout_s):
            await outcome_of(done, loop.create_future())
    except TimeoutError:
        return
    finally:
        for partition, handle in watched:
            partition.delayed.unwatch(handle)
