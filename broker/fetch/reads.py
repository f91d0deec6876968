"""The common part of consumers' and followers' fetches: the read is repeated until there are enough records, and data
that is not in the page cache is read on threads in between."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gregor.broker.answers.current_leaders import current_leader, node_endpoints, why_absent
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import FetchResponse
from gregor.storage.log.log import LogSlice

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext
    from gregor.storage.fs.cached_reads import NotCached
    from gregor.storage.log.log import Log

TOPIC_IDS_FROM = 13
LEADER_FROM = 16
MAX_FETCHES = 64
"""Limit of the reads on threads. After it the loop waits for the disk: the page cache is too small to keep the data."""
_LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class RepeatedRead(ABC):
    """The read of one request, which can be repeated."""

    __slots__ = ("_broker", "_call", "_fetches", "_found", "missing", "satisfied")

    def __init__(self, broker: DataContext, call: Call) -> None:
        self._broker = broker
        self._call = call
        self._found: list[tuple[Any, FetchResponse.PartitionData]] = []
        """Each requested partition, in the form of its session, with its part of the response."""
        self._fetches = 0
        self.satisfied = False
        self.missing: list[NotCached] = []
        """Data that is not in the page cache: call `fetch_missing`, then `collect` again."""

    @abstractmethod
    def collect(self) -> None:
        """Read the requested partitions within the byte limits; set `satisfied` when the response need not wait. While
        `missing` is not empty there is no response."""

    @abstractmethod
    def response(self) -> FetchResponse:
        """Make the response from the last `collect`. The file pieces in it are released when sent."""

    async def fetch_missing(self) -> None:
        """Read the missing data into the page cache, on threads."""
        self._fetches += 1
        calls = []
        for missing in self.missing:
            with suppress(OSError):  # the next read fails as well, and reports it
                calls.append(missing.fetcher())
        await asyncio.gather(*map(self._broker.background.read, calls))

    def release(self) -> None:
        """Release the file pieces of the last `collect`: the request continues to wait, or its client has left."""
        for _, data in self._found:
            release_records(data)
        self._found.clear()

    def _unknown(self, topic: str, topic_id: Uuid, index: int) -> KafkaError:
        name: str | None = topic
        if self._call.version >= TOPIC_IDS_FROM:
            name = self._broker.metadata.topic_name(topic_id)
            if name is None:
                return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return KafkaError(why_absent(self._broker, name or "", index))

    def _with_leader(
        self, topic: str, topic_id: Uuid, data: FetchResponse.PartitionData, leaders: list[int]
    ) -> FetchResponse.PartitionData:
        """Return an error, with the current leader if it means another one, whose id is added to `leaders`."""
        if self._call.version < LEADER_FROM or data.error_code not in _LED_ELSEWHERE:
            return data
        name = topic or self._broker.metadata.topic_name(topic_id) or ""
        leader = current_leader(self._broker, name, data.partition_index, FetchResponse.LeaderIdAndEpoch)
        leaders.append(leader.leader_id)
        return data.replaced(current_leader=leader)

    def _answer(
        self, session_id: int, topics: list[FetchResponse.FetchableTopicResponse], leaders: list[int]
    ) -> FetchResponse:
        response = FetchResponse(session_id=session_id, responses=topics)
        if leaders:
            response.node_endpoints = node_endpoints(self._broker, self._call, leaders, FetchResponse.NodeEndpoint)
        return response


def read_partition(
    index: int, log: Log | None, records: LogSlice | bytes, aborted: list[FetchResponse.AbortedTransaction] | None
) -> FetchResponse.PartitionData:
    """Return what was read of a partition, with its high watermark, last stable offset and log start offset; without a
    log there was an error."""
    if log is None:
        return FetchResponse.PartitionData(partition_index=index, records=records, aborted_transactions=aborted)
    offsets = log.offsets
    high_watermark = offsets.high_watermark
    return FetchResponse.PartitionData(
        partition_index=index,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark if log.producers.transactions is None else log.last_stable_offset,
        log_start_offset=offsets.log_start_offset,
        aborted_transactions=aborted,
        records=records,
    )


def refused_partition(
    index: int, error: ErrorCode, aborted: list[FetchResponse.AbortedTransaction] | None
) -> FetchResponse.PartitionData:
    """Return the answer for a partition that was not read. Its records are never null: to librdkafka that is a
    malformed response, and it fetches again at once."""
    return FetchResponse.PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=aborted,
        records=b"",
    )


def release_records(data: FetchResponse.PartitionData) -> None:
    if isinstance(data.records, LogSlice):
        data.records.release()
