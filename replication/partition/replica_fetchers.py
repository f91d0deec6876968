"""Keeps the partitions that this broker follows level with their leaders: the shell around partition.fetcher.

One connection and one task for each leader and fetcher id (`num.replica.fetchers`, partitions spread as Kafka's
AbstractFetcherManager does it). Who is followed comes from the controller's requests, where a leader is reached from
the metadata image: the endpoint of the listener that brokers talk on. A leader without one is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.api_keys import ApiKey
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

PATIENCE_S = 0.01
"""So long a new partition waits for the answer to a question that was asked before it came."""
KICKS_APART_S = 0.5
LATEST = -1
EARLIEST = -2

_log = logging.getLogger(__name__)


class FollowerSettings(NamedTuple):
    """What the tasks need besides `fetcher`'s own settings. Milliseconds and bytes."""

    fetcher: FetcherSettings
    listener: str
    timeout_ms: int
    receive_buffer_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> FollowerSettings:
        # Kafka's default is less than a link between data centres needs; unset, the kernel finds the right size.
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
        )


class Followers:
    """All partitions that this broker follows. `broker_epoch` tells the epoch of its present registration."""

    def __init__(
        self,
        settings: FollowerSettings,
        replicas: ReplicaManager,
        image: MetadataImage,
        clock_ms: Callable[[], int],
        broker_epoch: Callable[[], int],
        flush: Callable[[Log], Awaitable[None]],
        withdraw: Callable[[], Awaitable[None]],
        gate: Gate,
        fetchers_per_leader: int = 1,
        throttle: ReplicaThrottle | None = None,
    ) -> None:
        """`flush` brings a log to the disk, `withdraw` writes recovery points that fell to where they are kept
        (`truncated_logs`)."""
        self.settings = settings
        self.gate = gate
        self.image = image
        self.clock_ms = clock_ms
        self.broker_epoch = broker_epoch
        self.throttle = throttle
        self._fetchers_per_leader = fetchers_per_leader
        self._links: dict[tuple[int, int], _Link] = {}
        """By leader and fetcher id."""
        self._where: dict[TopicPartitionKey, _Link] = {}
        self.truncated_logs = TruncatedLogs(flush, withdraw)
        self._closed = False
        self._replicas = replicas
        replicas.on_leadership.append(self._roles_changed)
        replicas.on_stopped.append(self._stopped)
        replicas.on_log_moved.append(lambda partition: self._roles_changed([], [partition]))
        image.on_update.append(self._addresses_changed)

    def resize(self, fetchers_per_leader: int) -> None:
        """Spread the partitions over so many connections to each leader from now on."""
        if fetchers_per_leader == self._fetchers_per_leader:
            return
        self._fetchers_per_leader = fetchers_per_leader
        for key in list(self._where):
            partition = self._replicas.partitions.get(key)
            self._unfollow(key)
            if partition is not None:
                self._follow(partition)

    async def close(self) -> None:
        """Follow nobody any more."""
        self._closed = True
        links = list(self._links.values())
        self._links.clear()
        self._where.clear()
        for link in links:
            await link.close()
        await self.truncated_logs.close()

    # -- who is followed -------------------------------------------------------------------------------------------

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
        place = partition.leader_id, fetcher_id(partition.topic, partition.partition, self._fetchers_per_leader)
        link = self._links.get(place)
        if link is None:
            link = self._links[place] = _Link(self, *place)
        if link.follow(partition):
            self._where[key] = link

    def _unfollow(self, key: TopicPartitionKey) -> None:
        link = self._where.pop(key, None)
        if link is not None:
            link.fetcher.unfollow(key)

    def _addresses_changed(self) -> None:
        for link in self._links.values():
            link.look_up()

    def lost(self, link: _Link) -> bool:
        """The link follows nobody: it may end, unless somebody has come just now."""
        if len(link.fetcher):
            return False
        if self._links.get(link.place) is link:
            del self._links[link.place]
        return True


class _Link:
    """One connection to one leader, and the task that asks there."""

    def __init__(self, followers: Followers, leader_id: int, number: int) -> None:
        self.place = leader_id, number
        self.fetcher = Fetcher(followers.settings.fetcher, followers.throttle)
        self._followers = followers
        self._peer: Peer | None = None
        self._changed = asyncio.Event()
        """Somebody is followed, or the leader can be reached, who was not or could not be before."""
        self._failing = False
        self._sent_s = 0.0
        """Since when the leader owes an answer; 0 if it does not."""
        self._kick: asyncio.TimerHandle | None = None
        self._kicked_s = 0.0
        self._version = FIRST_VERSION
        self._outside: list[TopicPartitionKey] | Awaitable[list[TopicPartitionKey]] = []
        """What is left of an answer, if it takes longer."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher {leader_id}-{number}")

    def follow(self, partition: Partition) -> bool:
        """False where its disk refuses what must be done to the log first."""
        try:
            self.fetcher.follow(partition)
        except KafkaError as error:
            _log.error("%s-%d cannot be followed: %s", partition.topic, partition.partition, error)
            return False
        if partition.log is not None and partition.log.is_cut:
            self._followers.truncated_logs.sync(partition.log, self._synced)
        self._somebody_new()
        return True

    def _synced(self, log: Log) -> None:
        self.fetcher.synced(log)
        self._somebody_new()

    def _somebody_new(self) -> None:
        self._changed.set()
        if self._sent_s and self._kick is None:
            self._kick = asyncio.get_running_loop().call_later(PATIENCE_S, self._fetch_anew, self._sent_s)

    def _fetch_anew(self, sent_s: float) -> None:
        """Somebody new must not wait for the end of a question about others: it is dropped, and its connection. Not
        once the answer has begun to come: on a slow link it would never be whole while there is always somebody new."""
        self._kick = None
        now_s = time.monotonic()
        if self._sent_s != sent_s or now_s - self._kicked_s <= KICKS_APART_S or self._peer is None:
            return
        if not self._peer.is_answering:
            self._kicked_s = now_s
            self._disconnect()

    async def close(self) -> None:
        if self._kick is not None:
            self._kick.cancel()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._disconnect()

    def look_up(self) -> None:
        """The leader's address may be another."""
        address = self._address()
        if self._peer is not None and address is not None and address != self._peer.address:
            self._disconnect()
        if address is not None:
            self._changed.set()

    def _address(self) -> tuple[str, int] | None:
        broker = self._followers.image.brokers.get(self.place[0])
        endpoint = None if broker is None else broker.endpoints.get(self._followers.settings.listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _disconnect(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    async def _run(self) -> None:
        try:
            while not self._followers.lost(self):
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
                    await self._ask(address)
        finally:
            self._disconnect()

    async def _pause(self, wait_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._changed.wait()

    async def _ask(self, address: tuple[str, int]) -> None:
        followers, settings = self._followers, self._followers.settings
        peer = self._peer
        if peer is None:
            number = self.place[1]
            name = f"broker-{settings.fetcher.broker_id}-fetcher-{number}"
            peer = self._peer = Peer(*address, name, settings.timeout_ms, followers.gate, settings.receive_buffer_bytes)
        fetcher = self.fetcher
        try:
            version = min(fetcher.max_version, (await peer.offered(ApiKey.FETCH) or (0, 0))[1])
            if version < FIRST_VERSION:
                raise PeerError(f"{peer} offers no version of Fetch from {FIRST_VERSION} on")
            request = fetcher.request(followers.clock_ms(), followers.broker_epoch(), version)
            self._version, self._sent_s = version, time.monotonic()
            await peer.converse(request, version, self._following)
            outside = self._outside
            if isinstance(outside, Awaitable):
                outside = await outside
            if outside and peer is self._peer:  # else it would be connected again, and nobody would ever close it
                await self._fetch_range(peer, outside)
            if self._failing:
                self._failing = False
                _log.info("broker %d at %s can be fetched from again", self.place[0], peer)
        except PeerError as error:
            self._sent_s = 0.0
            fetcher.failed(followers.clock_ms())
            if peer is not self._peer:
                return  # disconnected by ourselves
            if not self._failing:
                self._failing = True
                _log.warning("broker %d cannot be fetched from; its followers here try again: %s", self.place[0], error)
            await self._pause_after_failure()
        except Exception:  # a bug: the partitions must not stay behind for it
            self._sent_s = 0.0
            _log.exception("a fetch response of broker %d could not be handled", self.place[0])
            fetcher.failed(followers.clock_ms())
            self._disconnect()
            await self._pause_after_failure()

    def _following(self, answer: FetchResponse) -> FetchRequest | None:
        """Write what came, and what to ask next; None where there is more to it."""
        self._sent_s = 0.0
        followers, fetcher = self._followers, self.fetcher
        now_ms = followers.clock_ms()
        self._outside = outside = followers.gate.start(fetcher.complete(answer, now_ms))
        must_look = self._failing or fetcher.max_version < self._version or fetcher.has_truncated
        if outside or must_look or fetcher.wait_ms(now_ms) != 0:
            return None  # what is left of a long response follows in turns
        self._sent_s = time.monotonic()
        return fetcher.request(now_ms, followers.broker_epoch(), self._version)

    async def _pause_after_failure(self) -> None:
        """At most `replica.fetch.backoff.ms`: less when there is news of the leader."""
        self._changed.clear()
        await self._pause(self._followers.settings.fetcher.backoff_ms)

    async def _fetch_range(self, peer: Peer, keys: list[TopicPartitionKey]) -> None:
        """Where the leader's logs begin and end, for partitions whose place is not in there."""
        ends = await self._offsets(peer, keys, LATEST)
        starts = await self._offsets(peer, keys, EARLIEST)
        now_ms = self._followers.clock_ms()
        for key, (leader_epoch, end_offset) in ends.items():
            start = starts.get(key)
            if start is not None and start[0] == leader_epoch:
                self.fetcher.found_range(key, leader_epoch, start[1], end_offset, now_ms)

    async def _offsets(
        self, peer: Peer, keys: list[TopicPartitionKey], timestamp: int
    ) -> dict[TopicPartitionKey, tuple[int, int]]:
        """By partition: the leader epoch asked in, and the offset. Without those of which the leader cannot tell."""
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
        answer: ListOffsetsResponse = await peer.send(request)
        found: dict[TopicPartitionKey, tuple[int, int]] = {}
        for answered in answer.topics:
            for one in answered.partitions:
                key = answered.name, one.partition_index
                if one.error_code == ErrorCode.NONE and key in epochs:
                    found[key] = epochs[key], one.offset
        return found


def fetcher_id(topic: str, partition: int, count: int) -> int:
    """Which of `count` fetchers a partition belongs to. (Kafka's AbstractFetcherManager.getFetcherId.)"""
    hashed = 0
    units = topic.encode("utf-16-be")
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + units[at] * 256 + units[at + 1]) & 0xFFFF_FFFF
    hashed = (31 * hashed + partition) & 0xFFFF_FFFF
    # Java's absolute value of its int, 0 for the one that has none.
    return (0x1_0000_0000 - hashed if hashed > 0x8000_0000 else hashed & 0x7FFF_FFFF) % count
