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

    def _name_leader(self, topic: str, topic_id: Uuid, data: FetchResponse.PartitionData, leaders: list[int]) -> None:
        """Add the current leader to an error that means another one, and its id to `leaders`."""
        if self._call.version >= LEADER_FROM and data.error_code in _LED_ELSEWHERE:
            name = topic or self._broker.metadata.topic_name(topic_id) or ""
            make = FetchResponse.LeaderIdAndEpoch
            data.current_leader = current_leader(self._broker, name, data.partition_index, make)
            leaders.append(data.current_leader.leader_id)

    def _answer(
        self, session_id: int, topics: list[FetchResponse.FetchableTopicResponse], leaders: list[int]
    ) -> FetchResponse:
        response = FetchResponse(session_id=session_id, responses=topics)
        if leaders:
            response.node_endpoints = node_endpoints(self._broker, self._call, leaders, FetchResponse.NodeEndpoint)
        return response


def set_offsets(data: FetchResponse.PartitionData, log: Log) -> None:
    """Set the high watermark, the last stable offset and the log start offset."""
    offsets = log.offsets
    data.high_watermark = data.last_stable_offset = offsets.high_watermark
    if log.producers.transactions is not None:
        data.last_stable_offset = log.last_stable_offset
    data.log_start_offset = offsets.log_start_offset


def release_records(data: FetchResponse.PartitionData) -> None:
    if isinstance(data.records, LogSlice):
        data.records.release()
