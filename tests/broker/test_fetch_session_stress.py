"""A consumer's view of its fetch session stays true, whatever happens to the topics in between.

A consumer keeps the answers that it got, and treats everything that a later answer leaves out as unchanged: both
together must match the broker's state.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteRecordsRequest, DeleteTopicsRequest, FetchRequest, FetchResponse
from gregor.replication.partition.partition import Partition
from tests.broker.harness import Harness, records_of, running

Key = tuple[str | bytes, int]
Told = tuple[int, int, int]
NAMES = "abcd"
TOPIC_IDS_FROM = 13


class Consumer:
    """Sends what changed since its last request, as Kafka's FetchSessionHandler does."""

    def __init__(self, harness: Harness, version: int) -> None:
        self.harness = harness
        self.version = version
        self.session_id = self.epoch = 0
        self.wanted: dict[Key, int] = {}
        self.sent: dict[Key, int] = {}
        self.told: dict[Key, Told] = {}

    def fetch(self, anew: bool) -> None:
        if anew or not self.session_id:
            self.epoch, self.sent, self.told = 0, {}, {}
        changed = {key: offset for key, offset in self.wanted.items() if self.sent.get(key) != offset}
        forgotten = [key for key in self.sent if key not in self.wanted]
        answer: FetchResponse = self.harness.ask(self.request(changed, forgotten), self.version)
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        if self.epoch:
            assert answer.session_id == self.session_id
        self.session_id = answer.session_id
        self.epoch += 1
        self.sent = dict(self.wanted)
        for key in forgotten:
            self.told.pop(key, None)
        self.take(answer)

    def request(self, changed: dict[Key, int], forgotten: list[Key]) -> FetchRequest:
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=2**30)
        request.session_id, request.session_epoch = self.session_id, self.epoch
        for (topic, index), offset in changed.items():
            part = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=2**20)
            one = FetchRequest.FetchTopic(partitions=[part])
            request.topics.append(one)
            if isinstance(topic, bytes):
                one.topic_id = topic
            else:
                one.topic = topic
        for topic, index in forgotten:
            gone = FetchRequest.ForgottenTopic(partitions=[index])
            request.forgotten_topics_data.append(gone)
            if isinstance(topic, bytes):
                gone.topic_id = topic
            else:
                gone.topic = topic
        return request

    def take(self, answer: FetchResponse) -> None:
        got = set()
        for topic in answer.responses:
            for data in topic.partitions:
                key: Key = (topic.topic_id if self.version >= TOPIC_IDS_FROM else topic.topic), data.partition_index
                assert key in self.wanted
                assert key not in got
                got.add(key)
                self.told[key] = data.error_code, data.high_watermark, data.log_start_offset
                if data.records:
                    self.wanted[key] = records_of(data)[-1].offset + 1
                elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.wanted[key] = self.partition(key).log_start_offset  # type: ignore[union-attr]

    def partition(self, key: Key) -> Partition | None:
        topic, index = key
        replicas = self.harness.broker.replicas
        return replicas.get_by_id(topic, index) if isinstance(topic, bytes) else replicas.get(topic, index)

    def check(self) -> None:
        """Against the partitions as they are; nothing is left unread."""
        for key, offset in self.sent.items():
            partition = self.partition(key)
            if partition is None:
                by_id = self.version >= TOPIC_IDS_FROM
                unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert self.told[key] == (unknown, -1, -1)
            elif not partition.log_start_offset <= offset <= partition.high_watermark:
                assert self.told[key] == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)
            else:
                assert self.told[key] == (0, partition.high_watermark, partition.log_start_offset)
                assert self.wanted[key] == partition.high_watermark


@pytest.mark.slow
@pytest.mark.parametrize("version", [7, 12, 17])
def test_told_and_left_out_are_the_truth(tmp_path: Path, version: int) -> None:
    chance = random.Random(version)
    topics: dict[str, bytes] = {}
    with running(tmp_path) as harness:
        consumer = Consumer(harness, version)
        for _ in range(150):
            name, index = chance.choice(NAMES), chance.randrange(2)
            match chance.randrange(9):
                case 0 | 1 | 2 if name in topics:
                    harness.produce(name, *[b"x"] * chance.randint(1, 3), partition=index)
                case 3 if name in topics:
                    delete_records(harness, name, index, chance)
                case 4 if name in topics:
                    harness.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)
                    del topics[name]
                case 5 if name not in topics:
                    topics[name] = harness.create_topic(name, 2)
                case 6 | 7 if name in topics:
                    consumer.wanted.setdefault((topics[name] if version >= TOPIC_IDS_FROM else name, index), 0)
                case 8 if len(consumer.wanted) > 1:
                    del consumer.wanted[chance.choice(list(consumer.wanted))]
            if consumer.wanted:
                consumer.fetch(anew=chance.random() < 0.05)
                consumer.check()
        assert consumer.epoch > 1


def delete_records(harness: Harness, topic: str, index: int, chance: random.Random) -> None:
    partition = harness.broker.replicas.get(topic, index)
    assert partition is not None
    offset = chance.randint(0, partition.high_watermark)
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
    topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])]
    harness.ask(DeleteRecordsRequest(topics=topics, timeout_ms=30_000), 2)
