"""Following a real broker over loopback: what it has written is here, byte for byte, and it knows that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.context import Call
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.server import Server
from gregor.broker.wiring import now_ms
from gregor.config.broker import BrokerConfig
from gregor.config.topic import LogConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import CreateTopicsRequest, LeaderAndIsrRequest, StopReplicaRequest
from gregor.protocol.turns import run_all
from gregor.replication.partition.fetcher import FetcherSettings
from gregor.replication.partition.metadata_image import Endpoint, LiveBroker, MetadataImage
from gregor.replication.partition.partition import Partition
from gregor.replication.partition.replica_fetchers import (
    MIN_BETWEEN_DROPS_S,
    Followers,
    FollowerSettings,
    LeaderLink,
    OutstandingFetch,
    fetcher_id,
)
from gregor.replication.partition.replica_manager import ReplicaManager
from gregor.replication.partition.truncation import TruncatedLogs
from gregor.storage.folders.manager import LogManager
from gregor.storage.fs.files import OsFiles
from gregor.storage.log.log import Log
from tests.broker.harness import batch
from tests.replication.fakes import on_loop

pytestmark = pytest.mark.slow

LEADER, FOLLOWER = 0, 1


class Leader:
    """A broker that serves, with topics whose replicas are on broker 1 as well."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.broker = server._node.broker
        self.replicas = self.broker.replicas

    async def create(self, topic: str, partitions: int) -> None:
        wanted = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
        entry = self.broker.handlers[CreateTopicsRequest.API_KEY]
        connection: Any = None
        answer = await entry.handler(
            self.broker, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), Call(connection, 19, 7, 1, None)
        )
        assert answer.topics[0].error_code == 0
        for index in range(partitions):
            self.tell(topic, index, epoch=1)

    def partition(self, topic: str, index: int = 0) -> Partition:
        partition = self.replicas.get(topic, index)
        assert partition is not None
        return partition

    def tell(self, topic: str, index: int, epoch: int) -> None:
        partition = self.partition(topic, index)
        request = role(partition, LEADER, epoch, partition.partition_epoch + 1, self.replicas.controller_epoch)
        assert run_all(self.replicas.apply(request)).topics[0].partition_errors[0].error_code == 0

    def append(self, topic: str, *values: bytes, index: int = 0) -> None:
        self.partition(topic, index).append(batch(*values), now_ms(), 1)


async def flush(log: Log) -> None:
    log.flusher.flush(now_ms())


async def nothing() -> None:
    """There are no recovery points."""


def role(partition: Partition, leader: int, epoch: int, partition_epoch: int, controller_epoch: int) -> Any:
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=partition.partition,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=epoch,
        isr=[LEADER, FOLLOWER],
        partition_epoch=partition_epoch,
        replicas=[LEADER, FOLLOWER],
        is_new=True,
    )
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name=partition.topic, topic_id=partition.topic_id, partition_states=[state]
    )
    return LeaderAndIsrRequest(controller_epoch=controller_epoch, type=1, topic_states=[topic])


class Follower:
    """Broker 1: replicas, logs, and the tasks under test."""

    def __init__(self, folder: Path, leader: Leader, fetchers: int, wait_max_ms: int) -> None:
        folder.mkdir()
        self.config = BrokerConfig({"log.dirs": str(folder), "broker.id": str(FOLLOWER)})
        self.logs = LogManager(self.config, OsFiles(100), now_ms)
        self.logs.lock()
        self.logs.load_meta("x", FOLLOWER)
        for _ in self.logs.load():
            pass
        self.image = MetadataImage()
        self.replicas = ReplicaManager(FOLLOWER, self.logs, lambda topic: LogConfig.defaults(), now_ms)
        settings = FollowerSettings(
            FetcherSettings(FOLLOWER, backoff_ms=50, wait_max_ms=wait_max_ms), "PLAINTEXT", 60_000, -1
        )
        self.followers = Followers(
            settings, self.replicas, self.image, now_ms, lambda: 5, TruncatedLogs(flush, nothing), LoopGate(), fetchers
        )
        self.leader = leader
        self.partition_epoch = 0

    def find_leader(self, port: int | None = None) -> None:
        (_, host, bound), *_ = self.leader.server.info.listeners
        self.image.brokers = {0: LiveBroker(0, {"PLAINTEXT": Endpoint(host, port or bound, 0)}, None)}
        for listener in self.image.on_update:
            listener()

    def follow(self, topic: str, index: int = 0, epoch: int | None = None) -> None:
        source = self.leader.partition(topic, index)
        self.partition_epoch += 1
        request = role(source, LEADER, epoch or source.leader_epoch, self.partition_epoch, 1)
        assert run_all(self.replicas.apply(request)).topics[0].partition_errors[0].error_code == 0

    def partition(self, topic: str, index: int = 0) -> Partition:
        partition = self.replicas.get(topic, index)
        assert partition is not None
        return partition

    async def close(self) -> None:
        await self.followers.close()
        self.logs.close_all()


@asynccontextmanager
async def pair(folder: Path, fetchers: int = 1, wait_max_ms: int = 200) -> AsyncIterator[tuple[Leader, Follower]]:
    server = Server(BrokerConfig({"log.dirs": str(folder / "leader"), "listeners": "PLAINTEXT://127.0.0.1:0"}))
    await server.start()
    follower = Follower(folder / "follower", Leader(server), fetchers, wait_max_ms)
    try:
        yield follower.leader, follower
    finally:
        await follower.close()
        await server.stop()


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(15_000):
        if holds():
            return
        await asyncio.sleep(0.002)
    pytest.fail("it did not come to pass")


def same(leader: Leader, follower: Follower, topic: str, index: int = 0) -> bool:
    a, b = leader.partition(topic, index), follower.partition(topic, index)
    assert a.log is not None and b.log is not None
    if not a.log_end_offset == b.log_end_offset == a.high_watermark:
        return False
    first = a.log.read(0, 1 << 20, a.log_end_offset)
    second = b.log.read(0, 1 << 20, b.log_end_offset)
    assert first.read() == second.read()
    return True


@on_loop
async def test_what_is_written_is_here_and_committed(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):
        await leader.create("orders", 3)
        follower.find_leader()
        for index in range(3):
            follower.follow("orders", index)
            leader.append("orders", b"a" * 1000, b"b", index=index)
        await until(lambda: all(same(leader, follower, "orders", index) for index in range(3)))
        leader.append("orders", b"c", index=1)
        await until(lambda: same(leader, follower, "orders", 1))
        # How far it is committed comes with the next answer, at the latest when its wait is over.
        await until(lambda: follower.partition("orders", 1).high_watermark == 3)
        assert list(follower.followers.partition_counts().values()) == [3]


@on_loop
async def test_one_connection_for_each_fetcher_and_none_for_nobody(tmp_path: Path) -> None:
    async with pair(tmp_path, fetchers=2) as (leader, follower):
        await leader.create("orders", 4)
        follower.find_leader()
        for index in range(4):
            follower.follow("orders", index)
            leader.append("orders", b"a", index=index)
        await until(lambda: all(same(leader, follower, "orders", index) for index in range(4)))
        counts = follower.followers.partition_counts
        assert counts() == {(0, 0): 2, (0, 1): 2}
        follower.followers.resize(1)
        leader.append("orders", b"b", index=3)
        await until(lambda: same(leader, follower, "orders", 3))
        await until(lambda: list(counts()) == [(0, 0)])
        stop = StopReplicaRequest(
            controller_epoch=1,
            topic_states=[
                StopReplicaRequest.StopReplicaTopicState(
                    topic_name="orders",
                    partition_states=[
                        StopReplicaRequest.StopReplicaPartitionState(partition_index=index) for index in range(4)
                    ],
                )
            ],
        )
        run_all(follower.replicas.stop(stop))
        await until(lambda: not counts())


@on_loop
async def test_a_leader_is_waited_for_and_followed_where_it_goes(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):
        await leader.create("orders", 1)
        follower.follow("orders")
        leader.append("orders", b"a")
        await asyncio.sleep(0)
        assert follower.partition("orders").log_end_offset == 0
        follower.find_leader(port=1)  # no broker listens there
        await asyncio.sleep(0.02)
        follower.find_leader()
        await until(lambda: same(leader, follower, "orders"))


@on_loop
async def test_who_comes_later_does_not_wait_for_an_answer_about_others(tmp_path: Path) -> None:
    async with pair(tmp_path, wait_max_ms=60_000) as (leader, follower):
        await leader.create("orders", 2)
        follower.find_leader()
        follower.follow("orders", 0)
        leader.append("orders", b"a")
        await until(lambda: same(leader, follower, "orders"))
        leader.append("orders", b"b", index=1)
        follower.follow("orders", 1)
        await until(lambda: same(leader, follower, "orders", 1))
        leader.append("orders", b"c")
        await until(lambda: same(leader, follower, "orders"))


@pytest.mark.parametrize("is_answering", [False, True])
def test_a_new_partition_does_not_drop_a_response_that_is_being_received(is_answering: bool) -> None:
    fetch = OutstandingFetch()
    fetch.sent_s = 5.0
    assert not fetch.drop(4.0, is_answering, 5.01), "the response to that request has been received"
    assert fetch.drop(5.0, is_answering, 5.01) is not is_answering
    fetch.sent_s = 5.02
    if not is_answering:
        assert not fetch.drop(5.02, False, 5.01 + MIN_BETWEEN_DROPS_S), "requests would never be answered"
    assert fetch.drop(5.02, False, 5.02 + MIN_BETWEEN_DROPS_S)


@on_loop
async def test_a_place_outside_the_leaders_log_is_found_anew(tmp_path: Path) -> None:
    """The leader has deleted what this broker has not got yet."""
    async with pair(tmp_path) as (leader, follower):
        await leader.create("orders", 1)
        leader.append("orders", *(b"%d" % number for number in range(20)))
        log = leader.partition("orders").log
        assert log is not None
        log.truncate_fully_and_start_at(50)
        leader.append("orders", b"a", b"b")
        follower.find_leader()
        follower.follow("orders")
        await until(lambda: follower.partition("orders").log_end_offset == 52)
        assert follower.partition("orders").log_start_offset == 50
        await until(lambda: leader.partition("orders").high_watermark == 52)


@on_loop
async def test_a_log_that_cannot_be_truncated_yet_is_followed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 2
    truncate = Log.truncate_to

    def scarce(log: Log, offset: int, now_ms: int = 0) -> None:
        nonlocal refusals
        if refusals and log.directory.startswith(f"{tmp_path}/follower"):
            refusals -= 1
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "orders-0: cannot truncate yet: Too many open files")
        truncate(log, offset, now_ms)

    monkeypatch.setattr(Log, "truncate_to", scarce)
    async with pair(tmp_path) as (leader, follower):
        await leader.create("orders", 1)
        leader.append("orders", b"a", b"b")
        follower.find_leader()
        follower.follow("orders")
        await until(lambda: follower.partition("orders").log_end_offset == 2)
        assert not refusals


def _signed(number: int) -> int:
    number &= 0xFFFF_FFFF
    return number - (1 << 32) if number >> 31 else number


def _java_hash(text: str) -> int:
    return _signed(sum(ord(char) * 31 ** (len(text) - 1 - at) for at, char in enumerate(text)))


@pytest.mark.parametrize("topic", ["a", "orders", "polygenelubricants", "__consumer_offsets", "π"])
def test_fetcher_ids_are_those_of_kafka(topic: str) -> None:
    for index in (0, 1, 99):
        hashed = _signed(31 * _java_hash(topic) + index)
        expected = 0 if hashed == -(2**31) else abs(hashed)
        for count in (1, 2, 3, 8):
            assert fetcher_id(topic, index, count) == expected % count


@pytest.mark.parametrize("turns", range(4))
def test_a_link_ends_though_there_was_news_just_then(turns: int) -> None:
    """As when a broker that stops receives a role just before its followers are closed."""

    async def end() -> None:
        image = MetadataImage()
        image.brokers = {0: LiveBroker(0, {"PLAINTEXT": Endpoint("leader", 9092, 0)}, None)}
        followers: Any = SimpleNamespace(
            settings=FollowerSettings(FetcherSettings(FOLLOWER), "PLAINTEXT", 60_000, -1),
            throttle=None,
            image=image,
            release=lambda _: False,
            clock_ms=lambda: 0,
        )
        link = LeaderLink(followers, 0, 0)
        fetcher: Any = SimpleNamespace(truncated_logs=list, wait_ms=lambda _: 60_000)
        link.fetcher = fetcher
        for _ in range(2):
            await asyncio.sleep(0)
        link.check_address()
        for _ in range(turns):
            await asyncio.sleep(0)
        closing = asyncio.create_task(link.close())
        await asyncio.wait([closing], timeout=30)
        assert closing.done(), "it does not end"

    asyncio.run(end())
