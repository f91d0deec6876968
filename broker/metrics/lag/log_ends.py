"""The ends of the logs that groups read: high watermarks, also those of partitions that other brokers lead.

Leaders of any kind show them by ListOffsets, which a scrape sends before its page is made: nothing is kept between
scrapes but what is younger than a second, and what a slow broker does not answer in a second is missing in the page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gregor.broker.metrics.kept_lines import batched
from gregor.broker.metrics.lag.leader_requests import LeaderRequests
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.replication.channels.peer import Peer
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager

MAX_AGE_S = 1.0
MAX_WAIT_S = 1.0
_LATEST = -1


class LogEnds:
    """`await refresh(...)`, then `of(...)`. Lives on the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        image: MetadataImage,
        background: Background,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._background = background
        self._clock_s = clock_s
        self._fetched: dict[TopicPartitionKey, tuple[int, float]] = {}  # the end, and when it was received
        self._requests: LeaderRequests[TopicPartitionKey] = LeaderRequests(
            config, image, background, "log-ends", self._exchange, security
        )

    def own(self, keys: Iterable[TopicPartitionKey]) -> list[int | None]:
        """Return the high watermarks of the partitions that this broker leads; None for others."""
        partition_of = self._replicas.partitions.get
        return [
            None
            if (partition := partition_of(key)) is None or (log := partition.leadership.log) is None
            else log.offsets.high_watermark
            for key in keys
        ]

    def of(self, keys: Sequence[TopicPartitionKey]) -> list[int | None]:
        """Return the high watermarks of partitions; None where it is not known."""
        ends = self.own(keys)
        for index, key in enumerate(keys):
            if ends[index] is None and (found := self._fetched.get(key)) is not None:
                ends[index] = found[0]
        return ends

    async def refresh(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Fetch the ends of those partitions that other brokers lead, for at most a second."""
        await self._background.search(self._request(keys))
        await self._requests.wait(MAX_WAIT_S)

    def close(self) -> None:
        self._requests.close()

    def _request(self, keys: Iterable[TopicPartitionKey]) -> Steps[None]:
        known, self._fetched = self._fetched, {}
        oldest_s = self._clock_s() - MAX_AGE_S
        own = self._replicas.partitions
        for block in batched(list(keys), ITEMS_PER_STEP):
            for key in block:
                partition = own.get(key)
                if partition is not None and partition.leadership.log is not None:
                    continue
                found = known.get(key)
                if found is not None and found[1] >= oldest_s:
                    self._fetched.setdefault(key, found)
                else:
                    self._add(key)
            yield None

    def _add(self, key: TopicPartitionKey) -> None:
        state = self._image.partition(*key)
        if state is not None and state.leader >= 0 and state.leader != self._replicas.broker_id:
            self._requests.add(state.leader, key)

    async def _exchange(self, peer: Peer, keys: list[TopicPartitionKey]) -> None:
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for name, index in keys:
            topic = topics.setdefault(name, ListOffsetsRequest.ListOffsetsTopic(name=name))
            topic.partitions.append(ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
        response: ListOffsetsResponse = await peer.send(ListOffsetsRequest(replica_id=-1, topics=list(topics.values())))
        received_s = self._clock_s()
        for found in response.topics:
            for part in found.partitions:
                if part.error_code == ErrorCode.NONE:
                    self._fetched[found.name, part.partition_index] = part.offset, received_s
