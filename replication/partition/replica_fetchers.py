"""Fetches the partitions that this broker follows from their leaders: the shell around partition.fetcher.

One connection and one task for each leader and fetcher id (`num.replica.fetchers`; partitions are spread as Kafka's
AbstractFetcherManager does it). The controller's requests determine the leader of a partition, the metadata image its
address: the endpoint of the inter-broker listener. The task waits while a leader has none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import Gate
from gregor.replication.channels.peer import Peer, PeerError
from gregor.replication.partition.fetcher import FIRST_VERSION, Fetcher, FetcherSettings
from gregor.replication.partition.truncation import TruncatedLogs

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.partition.throttle import ReplicaThrottle
    from gregor.storage.log.log import Log

MAX_WAIT_OF_NEW_S = 0.01
"""How long a new partition waits for the response to a fetch that was sent before it was added."""
MIN_BETWEEN_DROPS_S = 0.5
LATEST = -1
EARLIEST = -2

_log = logging.getLogger(__name__)


class FollowerSettings(NamedTuple):
    """The settings of the connections and of the Fetcher, in milliseconds and bytes."""

    fetcher: FetcherSettings
    listener: str
    timeout_ms: int
    receive_buffer_bytes: int
    security: ChannelSecurity = PLAINTEXT_CHANNEL

    @classmethod
    def of(cls, config: BrokerConfig, security: ChannelSecurity = PLAINTEXT_CHANNEL) -> FollowerSettings:
        # Kafka's default is too small between data centres; without a setting the kernel finds the right size.
        buffer_given = "replica.socket.receive.buffer.bytes" in config.static_texts
        return cls(
            FetcherSettings(
                config.broker_id,
                wait_max_ms=config["replica.fetch.wait.max.ms"],
                min_bytes=config["replica.fetch.min.bytes"],
                max_bytes=config["replica.fetch.max.bytes"],
                response_max_bytes=config["replica.fetch.response.max.bytes"],
                backoff_ms=config["replica.fetch.backoff.ms"],
            ),
            listener=config.inter_broker_listener_name,
            timeout_ms=config["replica.socket.timeout.ms"],
            receive_buffer_bytes=config["replica.socket.receive.buffer.bytes"] if buffer_given else -1,
            security=security,
        )


class Followers:
    """All partitions that this broker follows. `broker_epoch` returns the epoch of its present registration."""

    def __init__(
        self,
        settings: FollowerSettings,
        replicas: ReplicaManager,
        image: MetadataImage,
        clock_ms: Callable[[], int],
        broker_epoch: Callable[[], int],
        truncated_logs: TruncatedLogs,
        gate: Gate,
        fetchers_per_leader: int = 1,
        throttle: ReplicaThrottle | None = None,
    ) -> None:
        self.settings = settings
        self.gate = gate
        self.image = image
        self.clock_ms = clock_ms
        self.broker_epoch = broker_epoch
        self.throttle = throttle
        self.truncated_logs = truncated_logs
        self._fetchers_per_leader = fetchers_per_leader
        self._links: dict[tuple[int, int], LeaderLink] = {}
        """By leader and fetcher id."""
        self._link_of: dict[TopicPartitionKey, LeaderLink] = {}
        self._closed = False
        self._replicas = replicas
        replicas.on_leadership.append(self._roles_changed)
        replicas.on_stopped.append(self._stopped)
        replicas.on_log_moved.append(lambda partition: self._roles_changed([], [partition]))
        image.on_update.append(self._addresses_changed)

    def resize(self, fetchers_per_leader: int) -> None:
        """Spread the partitions over this number of connections to each leader."""
        if fetchers_per_leader == self._fetchers_per_leader:
            return
        self._fetchers_per_leader = fetchers_per_leader
        for key in list(self._link_of):
            partition = self._replicas.partitions.get(key)
            self._unfollow(key)
            if partition is not None:
                self._follow(partition)

    async def close(self) -> None:
        """Stop fetching, and close the connections."""
        self._closed = True
        links = list(self._links.values())
        self._links.clear()
        self._link_of.clear()
        for link in links:
            await link.close()
        await self.truncated_logs.close()

    def partition_counts(self) -> dict[tuple[int, int], int]:
        """Return the number of partitions that are fetched, by leader and fetcher id."""
        return {link_id: len(link.fetcher) for link_id, link in self._links.items()}

    # -- roles -----------------------------------------------------------------------------------------------------

    def _roles_changed(self, leaders: list[Partition], followers: list[Partition]) -> None:
        for partition in leaders:
            self._unfollow((partition.topic, partition.partition))
        for partition in followers:
            self._unfollow((partition.topic, partition.partition))
            self._follow(partition)

    def _stopped(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            self._unfollow((partition.topic, partition.partition))

    def _follow(self, partition: Partition) -> None:
        if self._closed or partition.is_leader or partition.leader_id < 0 or partition.log is None:
            return
        key = partition.topic, partition.partition
        link_id = partition.leader_id, fetcher_id(partition.topic, partition.partition, self._fetchers_per_leader)
        link = self._links.get(link_id)
        if link is None:
            link = self._links[link_id] = LeaderLink(self, *link_id)
        if link.follow(partition):
            self._link_of[key] = link
        elif not partition.log.offline:
            backoff_s = self.settings.fetcher.backoff_ms / 1000
            asyncio.get_running_loop().call_later(backoff_s, self._follow_again, partition)

    def _follow_again(self, partition: Partition) -> None:
        key = partition.topic, partition.partition
        if key not in self._link_of and self._replicas.partitions.get(key) is partition:
            self._follow(partition)

    def _unfollow(self, key: TopicPartitionKey) -> None:
        link = self._link_of.pop(key, None)
        if link is not None:
            link.fetcher.unfollow(key)

    def _addresses_changed(self) -> None:
        for link in self._links.values():
            link.check_address()

    def release(self, link: LeaderLink) -> bool:
        """Forget a connection over which no partition is fetched. False if one has been added meanwhile."""
        if len(link.fetcher):
            return False
        if self._links.get(link.id) is link:
            del self._links[link.id]
        return True


class OutstandingFetch:
    """The fetch request that awaits its response. It may be dropped, so that a new partition need not wait for that.

    Not more often than every MIN_BETWEEN_DROPS_S, and not once the response has begun to arrive: on a slow connection
    none would ever be received as a whole while partitions are added all the time.
    """

    __slots__ = ("_dropped_s", "sent_s")

    def __init__(self) -> None:
        self.sent_s = 0.0
        """When the request was sent; 0 while none is outstanding."""
        self._dropped_s = 0.0

    def sent(self) -> None:
        """Note that the request is sent now."""
        self.sent_s = time.monotonic()

    def ended(self) -> None:
        """Note that the request is answered, or has failed."""
        self.sent_s = 0.0

    def drop(self, sent_s: float, is_answering: bool, now_s: float) -> bool:
        """Return whether the request that was sent at `sent_s` is to be dropped now."""
        if self.sent_s != sent_s or is_answering or now_s - self._dropped_s <= MIN_BETWEEN_DROPS_S:
            return False
        self._dropped_s = now_s
        return True


class LeaderLink:
    """One connection to one leader, and the task that fetches over it."""

    def __init__(self, followers: Followers, leader_id: int, number: int) -> None:
        self.id = leader_id, number
        self.fetcher = Fetcher(followers.settings.fetcher, followers.throttle)
        self._followers = followers
        self._peer: Peer | None = None
        self._changed = asyncio.Event()
        """A partition was added or may be fetched again, or the leader's address is known now or has changed."""
        self._failing = False
        self._outstanding = OutstandingFetch()
        self._drop_timer: asyncio.TimerHandle | None = None
        self._version = FIRST_VERSION
        self._outside: list[TopicPartitionKey] | Awaitable[list[TopicPartitionKey]] = []
        """The partitions outside the leader's log, of the last response; an awaitable while it is not handled in
        full."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher {leader_id}-{number}")

    def follow(self, partition: Partition) -> bool:
        """Fetch a partition from now on. False where its log cannot be truncated as it must be first."""
        try:
            self.fetcher.follow(partition)
        except KafkaError as error:
            _log.error("%s-%d cannot be followed: %s", partition.topic, partition.partition, error)
            return False
        if partition.log is not None and partition.log.flusher.is_truncated:
            self._followers.truncated_logs.sync(partition.log, self._synced)
        self._partition_added()
        return True

    def _synced(self, log: Log) -> None:
        self.fetcher.synced(log)
        self._partition_added()

    def _partition_added(self) -> None:
        self._changed.set()
        sent_s = self._outstanding.sent_s
        if sent_s and self._drop_timer is None:
            loop = asyncio.get_running_loop()
            self._drop_timer = loop.call_later(MAX_WAIT_OF_NEW_S, self._drop_outstanding, sent_s)

    def _drop_outstanding(self, sent_s: float) -> None:
        self._drop_timer = None
        peer = self._peer
        if peer is not None and self._outstanding.drop(sent_s, peer.is_answering, time.monotonic()):
            self._disconnect()

    async def close(self) -> None:
        if self._drop_timer is not None:
            self._drop_timer.cancel()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._disconnect()

    def check_address(self) -> None:
        """Close the connection if the leader has another address now."""
        address = self._address()
        if self._peer is not None and address is not None and address != self._peer.address:
            self._disconnect()
        if address is not None:
            self._changed.set()

    def _address(self) -> tuple[str, int] | None:
        broker = self._followers.image.brokers.get(self.id[0])
        endpoint = None if broker is None else broker.endpoints.get(self._followers.settings.listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _disconnect(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    async def _run(self) -> None:
        try:
            while not self._followers.release(self):
                self._changed.clear()
                for log in self.fetcher.truncated_logs():
                    self._followers.truncated_logs.sync(log, self._synced)
                wait_ms = self.fetcher.wait_ms(self._followers.clock_ms())
                address = self._address()
                if address is None or wait_ms is None:
                    await self._changed.wait()
                elif wait_ms:
                    await self._pause(wait_ms)
                else:
                    await self._fetch(address)
        finally:
            self._disconnect()

    async def _pause(self, wait_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._changed.wait()

    async def _fetch(self, address: tuple[str, int]) -> None:
        followers, settings = self._followers, self._followers.settings
        peer = self._peer
        if peer is None:
            number = self.id[1]
            name = f"broker-{settings.fetcher.broker_id}-fetcher-{number}"
            buffer_bytes, security = settings.receive_buffer_bytes, settings.security
            peer = Peer(*address, name, settings.timeout_ms, followers.gate, buffer_bytes, security)
            self._peer = peer
        fetcher = self.fetcher
        try:
            version = min(fetcher.max_version, (await peer.offered(ApiKey.FETCH) or (0, 0))[1])
            if version < FIRST_VERSION:
                raise PeerError(f"{peer} offers no version of Fetch from {FIRST_VERSION} on")
            request = fetcher.request(followers.clock_ms(), followers.broker_epoch(), version)
            self._version = version
            self._outstanding.sent()
            await peer.converse(request, version, self._next_request)
            outside = self._outside
            if isinstance(outside, Awaitable):
                outside = await outside
            if outside and peer is self._peer:  # else it would connect again, and the connection would never be closed
                await self._fetch_range(peer, outside)
            if self._failing:
                self._failing = False
                _log.info("broker %d at %s can be fetched from again", self.id[0], peer)
        except PeerError as error:
            self._outstanding.ended()
            fetcher.failed(followers.clock_ms())
            if peer is not self._peer:
                return  # disconnected by this broker
            if not self._failing:
                self._failing = True
                _log.warning("broker %d cannot be fetched from; its followers here try again: %s", self.id[0], error)
            await self._pause_after_failure()
        except Exception:  # a bug: it must not end the task, or the partitions would stay behind
            self._outstanding.ended()
            _log.exception("a fetch response of broker %d could not be handled", self.id[0])
            fetcher.failed(followers.clock_ms())
            self._disconnect()
            await self._pause_after_failure()

    def _next_request(self, response: FetchResponse) -> FetchRequest | None:
        """Append what was fetched, and return the next request; None where something else comes first."""
        self._outstanding.ended()
        followers, fetcher = self._followers, self.fetcher
        now_ms = followers.clock_ms()
        self._outside = outside = followers.gate.start(fetcher.complete(response, now_ms))
        must_leave = self._failing or fetcher.max_version < self._version or fetcher.has_truncated
        if outside or must_leave or fetcher.wait_ms(now_ms) != 0:
            return None  # the rest of a long response is handled in steps
        self._outstanding.sent()
        return fetcher.request(now_ms, followers.broker_epoch(), self._version)

    async def _pause_after_failure(self) -> None:
        """Wait for `replica.fetch.backoff.ms`, or until the leader's address is known or a partition is added."""
        self._changed.clear()
        await self._pause(self._followers.settings.fetcher.backoff_ms)

    async def _fetch_range(self, peer: Peer, keys: list[TopicPartitionKey]) -> None:
        """Fetch the leader's log start and end offsets of partitions whose fetch offset lies outside them."""
        ends = await self._offsets(peer, keys, LATEST)
        starts = await self._offsets(peer, keys, EARLIEST)
        now_ms = self._followers.clock_ms()
        for key, (leader_epoch, end_offset) in ends.items():
            start = starts.get(key)
            if start is not None and start[0] == leader_epoch:
                self.fetcher.reset_to_range(key, leader_epoch, start[1], end_offset, now_ms)

    async def _offsets(
        self, peer: Peer, keys: list[TopicPartitionKey], timestamp: int
    ) -> dict[TopicPartitionKey, tuple[int, int]]:
        """Return the leader epoch of the request and the offset, by partition; without those in error."""
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        epochs: dict[TopicPartitionKey, int] = {}
        for name, index in keys:
            epoch = self.fetcher.leader_epoch((name, index))
            if epoch is None:
                continue
            epochs[name, index] = epoch
            topic = topics.setdefault(name, ListOffsetsRequest.ListOffsetsTopic(name=name))
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=self._followers.settings.fetcher.broker_id, topics=list(topics.values())
        )
        response: ListOffsetsResponse = await peer.send(request)
        found: dict[TopicPartitionKey, tuple[int, int]] = {}
        for found_topic in response.topics:
            for one in found_topic.partitions:
                key = found_topic.name, one.partition_index
                if one.error_code == ErrorCode.NONE and key in epochs:
                    found[key] = epochs[key], one.offset
        return found


def fetcher_id(topic: str, partition: int, count: int) -> int:
    """Return which of `count` fetchers a partition belongs to, as Kafka's AbstractFetcherManager.getFetcherId."""
    hashed = 0
    units = topic.encode("utf-16-be")
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + units[at] * 256 + units[at + 1]) & 0xFFFF_FFFF
    hashed = (31 * hashed + partition) & 0xFFFF_FFFF
    # Java's absolute value of the int, 0 for the smallest int, which has none.
    return (0x1_0000_0000 - hashed if hashed > 0x8000_0000 else hashed & 0x7FFF_FFFF) % count
