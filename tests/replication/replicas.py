"""Replicas of one partition at several brokers; tests pass the requests and responses between them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FetchRequest, FetchResponse
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import run_all
from gregor.replication.partition.fetcher import Fetcher, FetcherSettings
from gregor.replication.partition.offset_lookup import diverging_epoch
from gregor.replication.partition.partition import Partition
from gregor.storage.log.log import Log
from tests.storage.logs import batch, open_log
from tests.storage.memory_files import MemoryFiles

NOW = 1_700_000_000_000
LAG = 10_000
TOPIC_ID = bytes(range(16))


def state(
    leader: int, epoch: int, isr: list[int], replicas: list[int], partition_epoch: int = 0, adding: Sequence[int] = ()
) -> Any:
    """Return the state of partition 0 in a LeaderAndIsr request."""
    return SimpleNamespace(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        partition_epoch=partition_epoch,
        replicas=replicas,
        adding_replicas=adding,
    )


def leader_of(log: Any, replicas: list[int], isr: list[int] | None = None, epoch: int = 0) -> Partition:
    """Return a partition that broker 0 leads."""
    partition = Partition("t", 0, bytes(16), 0, lag_time_max_ms=LAG)
    partition.use_log(log)
    partition.become_leader(state(0, epoch, replicas if isr is None else isr, replicas), NOW)
    return partition


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


class Replica:
    """A broker with one replica of one partition, and the fetcher with which it follows."""

    def __init__(self, broker_id: int, topic: str = "orders", topic_id: bytes = TOPIC_ID) -> None:
        self.broker_id = broker_id
        self.files = MemoryFiles()
        self.partition = Partition(topic, 0, topic_id, broker_id, lag_time_max_ms=LAG)
        self.partition.use_log(open_log(self.files, segment_bytes=600))
        self.fetcher = Fetcher(FetcherSettings(broker_id, backoff_ms=1000))
        self.session: dict[TopicPartitionKey, FetchRequest.FetchPartition] = {}

    @property
    def log(self) -> Log:
        assert self.partition.log is not None
        return self.partition.log

    def lead(self, epoch: int, isr: list[int], replicas: list[int], partition_epoch: int) -> None:
        self.fetcher.unfollow((self.partition.topic, 0))
        self.partition.become_leader(state(self.broker_id, epoch, isr, replicas, partition_epoch), NOW)

    def follow(self, leader: int, epoch: int, isr: list[int], replicas: list[int], partition_epoch: int) -> None:
        if self.partition.become_follower(state(leader, epoch, isr, replicas, partition_epoch)):
            self.fetcher.failed(NOW)
            self.session.clear()
            self.fetcher.follow(self.partition)

    def append(self, count: int = 1, value: int = 0) -> None:
        self.partition.append(batch(count, size=20 + value), NOW, 1)

    def contents(self, end: int) -> list[bytes]:
        """The batches below an offset as they lie in the files."""
        found, offset = [], self.log.log_start_offset
        while offset < end:
            piece = self.log.read(offset, 1, end, True)
            data = piece.read()
            piece.release()
            if not data:
                break
            found.append(data)
            offset = int.from_bytes(data[:8]) + int.from_bytes(data[23:27]) + 1
        return found


def answer(leader: Replica, asker: Replica, request: FetchRequest, max_bytes: int = 1 << 20) -> FetchResponse:
    """Return a leader's response; in a session the requested partitions are remembered, as by the handler."""
    if request.session_epoch == 0:
        asker.session = {}
    for gone in request.forgotten_topics_data:
        for index in gone.partitions:
            asker.session.pop((gone.topic, index), None)
    for topic in request.topics:
        assert topic.topic_id == leader.partition.topic_id
        for wanted in topic.partitions:
            asker.session[topic.topic, wanted.partition] = wanted
    partition = leader.partition
    data = FetchResponse.PartitionData(partition_index=0, records=b"", high_watermark=-1)
    wanted_now = asker.session.get((partition.topic, 0))
    topics = []
    if wanted_now is not None:
        try:
            partition.check_epoch(wanted_now.current_leader_epoch)
            diverging = diverging_epoch(partition, wanted_now.last_fetched_epoch, wanted_now.fetch_offset)
            if diverging is not None:
                data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
            else:
                piece = partition.read(wanted_now.fetch_offset, max_bytes, replica_id=asker.broker_id)
                data.records = memoryview(piece.read())
                piece.release()
                partition.leadership.update_follower(asker.broker_id, wanted_now.fetch_offset, NOW)
            data.high_watermark, data.log_start_offset = partition.high_watermark, partition.log_start_offset
        except KafkaError as error:
            data.error_code = error.code
        topics = [FetchResponse.FetchableTopicResponse(topic_id=partition.topic_id, partitions=[data])]
    return FetchResponse(session_id=7, responses=topics)


def sync(follower: Replica) -> None:
    """Sync the follower's truncated logs."""
    for log in follower.fetcher.truncated_logs():
        log.flusher.flush()
        follower.fetcher.synced(log)


def exchange(
    follower: Replica, leader: Replica, now_ms: int = NOW, max_bytes: int = 1 << 20
) -> list[TopicPartitionKey]:
    sync(follower)
    request = follower.fetcher.request(now_ms, 5)
    return run_all(follower.fetcher.complete(answer(leader, follower, request, max_bytes), now_ms))


def pair(records: int = 0) -> tuple[Replica, Replica]:
    leader, follower = Replica(0), Replica(1)
    leader.lead(0, [0, 1], [0, 1], 0)
    follower.follow(0, 0, [0, 1], [0, 1], 0)
    for number in range(records):
        leader.append(value=number)
    return leader, follower
