"""Fetch, versions 0 to 3: records converted down to the message sets that consumers before 0.11 read.

Versions 0 and 1 get magic 0, versions 2 and 3 magic 1 (records.down_conversion). The conversion costs per record, so it
runs in slices, and no more is read than will be sent: one piece of at most AT_ONCE_BYTES for each partition.

- Batches without a message for the consumer (control batches, batches that compaction has emptied) are skipped, or the
  consumer would never get past them; with nothing behind them, the request continues to wait.
- Before version 3 every partition contributes records, since these consumers never change the order of the partitions;
  from version 3 on only the first one must (KIP-74).
- A message that is larger than the requested size is sent whole from version 3 on. Before, it is truncated, which shows
  consumers of that time that they must request more.
- zstd cannot be converted: UNSUPPORTED_COMPRESSION_TYPE.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from gregor.broker.fetch.consumer import FetchRead, without_storage_errors
from gregor.broker.fetch.delayed import DelayedFetch
from gregor.broker.fetch.reads import MAX_FETCHES, release_records
from gregor.protocol.deferred import outcome_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FetchResponse
from gregor.protocol.records.batch import CorruptBatch
from gregor.protocol.records.down_conversion import Converted, UnsupportedCodec, down_converting, truncate_message
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.storage.fs.cached_reads import NotCached
from gregor.storage.log.log import LogSlice

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.broker.fetch.context import FetchPathContext
    from gregor.broker.fetch.sessions import FetchContext, FetchedPartition
    from gregor.protocol.messages import FetchRequest

MAGIC_1_FROM = 2
ANSWER_LIMIT_FROM = 3

AT_ONCE_BYTES = 1024 * 1024
ANSWER_BYTES = 8 * 1024 * 1024
"""Consumers of version 3 request up to 50 MB; they continue with the partitions for which there was no room."""


async def fetch_converted(broker: FetchPathContext, request: FetchRequest, call: Call) -> FetchResponse:
    context = broker.fetch_sessions.context(request, False, broker.now_ms())
    requested_bytes = {(wanted.topic, wanted.index): wanted.max_bytes for wanted in context.partitions}
    for wanted in context.partitions:
        wanted.limit_bytes(AT_ONCE_BYTES)
    request = request.replaced(min_bytes=min(request.min_bytes, AT_ONCE_BYTES))
    if call.version >= ANSWER_LIMIT_FROM:
        request = request.replaced(max_bytes=min(request.max_bytes, ANSWER_BYTES))
    over = broker.loop.time() + max(0, request.max_wait_ms) / 1000
    while True:
        response = await _fetch(broker, request, call, context)
        conversion = _Conversion(broker, request, call, context, requested_bytes)
        try:
            converted = await conversion.convert(response)
        except BaseException:
            _release(response)
            raise
        left_ms = int((over - broker.loop.time()) * 1000)
        if (
            response.throttle_time_ms
            or conversion.found_something
            or left_ms <= 0
            or not conversion.skip_what_was_read()
        ):
            return converted
        request = request.replaced(max_wait_ms=left_ms)


async def _fetch(broker: FetchPathContext, request: FetchRequest, call: Call, context: FetchContext) -> FetchResponse:
    read = FetchRead(broker, request, call, context)
    read.collect()
    if not read.missing and (read.satisfied or request.max_wait_ms <= 0):
        return read.response()
    delayed = DelayedFetch(broker.loop, broker.delayed_reads, read, max(0, request.max_wait_ms) / 1000)
    try:
        return await outcome_of(delayed, broker.loop.create_future())
    except BaseException:
        if delayed.value is not None:  # the client left in the turn in which it was completed
            _release(delayed.value)
        raise


def _release(response: FetchResponse) -> None:
    for topic in response.responses:
        for data in topic.partitions:
            release_records(data)


class _Conversion:
    """The conversion of one response."""

    __slots__ = (
        "_broker",
        "_call",
        "_has_messages",
        "_left",
        "_magic",
        "_read_to",
        "_requested_bytes",
        "_wanted",
        "found_something",
    )

    def __init__(
        self,
        broker: FetchPathContext,
        request: FetchRequest,
        call: Call,
        context: FetchContext,
        requested_bytes: Mapping[TopicPartitionKey, int],
    ) -> None:
        self._requested_bytes = requested_bytes
        self._broker = broker
        self._call = call
        self._magic = 1 if call.version >= MAGIC_1_FROM else 0
        self._left = min(request.max_bytes, broker.config["fetch.max.bytes"])
        self._read_to: list[tuple[FetchedPartition, int]] = []
        self._has_messages = False
        self.found_something = False
        """Whether the response has messages, or an error."""
        self._wanted = {(wanted.topic, wanted.index): wanted for wanted in context.partitions}

    async def convert(self, response: FetchResponse) -> FetchResponse:
        """Return the response with message sets in place of the pieces of files, which are released."""
        topics = []
        for topic in response.responses:
            partitions = [await self._converted(topic.topic, data) for data in topic.partitions]
            topics.append(topic.replaced(partitions=partitions))
        return response.replaced(responses=topics)

    async def _converted(self, topic: str, data: FetchResponse.PartitionData) -> FetchResponse.PartitionData:
        if data.error_code:
            self.found_something = True
            return data
        key = (topic, data.partition_index)
        must = not self._has_messages or (self._left > 0 and self._call.version < ANSWER_LIMIT_FROM)
        try:
            records = await self._records(data, self._wanted[key], must)
        except KafkaError as error:
            self.found_something = True
            return data.replaced(error_code=without_storage_errors(error.code), high_watermark=-1, records=b"")
        if self._call.version < ANSWER_LIMIT_FROM:
            records = truncate_message(records, self._requested_bytes[key])
        self._left -= len(records)
        if records:
            self.found_something = self._has_messages = True
        return data.replaced(records=records)

    def skip_what_was_read(self) -> bool:
        """Let the next read begin behind batches without messages; return whether there were any."""
        for wanted, offset in self._read_to:
            wanted.skip_to(offset)
        return bool(self._read_to)

    async def _records(self, data: FetchResponse.PartitionData, wanted: FetchedPartition, must: bool) -> bytes:
        """Convert records for the rest of the response; at least one message if `must`. Raises KafkaError."""
        offset = wanted.fetch_offset
        piece = data.records
        while must or self._left > 0:
            if not isinstance(piece, LogSlice) or not piece.size_bytes:
                if not must or offset >= data.high_watermark:
                    break
                piece = await self._read(wanted, offset)
                if not piece.size_bytes:
                    break
            limit = min(wanted.max_bytes, self._left)
            converted = await self._convert(piece, offset, limit)
            if converted.message_set:
                return converted.message_set
            if converted.next_offset <= offset:
                break
            offset = converted.next_offset
            piece, must = None, True
        release_records(data)
        if offset > wanted.fetch_offset:
            self._read_to.append((wanted, offset))
        return b""

    async def _read(self, wanted: FetchedPartition, offset: int) -> LogSlice:
        for attempt in range(MAX_FETCHES + 1):
            partition = self._broker.replicas.get(wanted.topic, wanted.index)
            if partition is None:
                break
            waits = attempt == MAX_FETCHES
            try:
                return partition.read(offset, wanted.max_bytes, min_one_batch=True, waits_for_disk=waits)
            except NotCached as missing:
                with suppress(OSError):  # the next attempt fails as well, and reports it
                    await self._broker.background.read(missing.fetcher())
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def _convert(self, piece: LogSlice, offset: int, max_bytes: int) -> Converted:
        background = self._broker.background
        try:
            async with background.large_batches:
                data = await background.read(piece.read)
                return await background.run_steps(down_converting(data, self._magic, offset, max_bytes))
        except OSError:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from None
        except UnsupportedCodec:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE) from None
        except CorruptBatch:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE) from None
        finally:
            piece.release()
