"""The compacted topic of the states: its creation, and the last committed record of a key.

The topic has one partition, so that a key never moves to another. After InitProducerId all transactions of the own
transactional id have ended, below the high watermark. Those of other queries may be open and keep the last stable
offset, up to which committed records are known, below records of the own one: `read` waits until they have ended.
"""

from __future__ import annotations

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    CreateTopicsRequest,
    FetchRequest,
    FetchResponse,
)
from gregor.protocol.records.batch import iter_batches
from gregor.protocol.records.control import ABORT, control_type
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.configs import topic_configs
from gregor.spark_jobs.client.empty_fetches import EmptyFetches
from gregor.spark_jobs.client.failure import KafkaFailure, raise_if_throttled
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST, list_offsets
from gregor.spark_jobs.client.settings import READ_COMMITTED, READ_UNCOMMITTED
from gregor.spark_jobs.errors import JobError

_CREATE_TOPICS_VERSIONS = 4, 7
"""4 is the first with the broker's default replication factor (KIP-464)."""
_FETCH_VERSIONS = 4, 12
_CLEANUP_POLICY = "cleanup.policy"
_FETCH_BYTES = 1024 * 1024
_CONFIGS = {_CLEANUP_POLICY: "compact", "segment.bytes": str(1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}
"""Small segments, because only closed ones are compacted, and each start of a query reads the whole topic."""


class StateTopic:
    """The last committed value of one key, from a topic that is read on from where the last reading ended."""

    def __init__(self, cluster: Cluster, name: str, key: bytes) -> None:
        self._cluster = cluster
        self._key = key
        self._next_offset: int | None = None
        self._value: bytes | None = None
        self.partition = TopicPartition(name, 0)

    def prepare(self) -> None:
        """Create the topic if it does not exist; raise JobError if it does not keep the last record of each key."""
        retries = self._cluster.retrying()
        while True:
            try:
                if self._exists():
                    break
                self._create()
                # Brokers learn of a topic a little after its creation.
                failure = KafkaFailure(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"the topic {self.partition.topic} has no leader"
                )
            except KafkaFailure as error:
                failure = error
            retries.after(failure)
        policy = retries.run(self._cleanup_policy)
        if policy != "compact":
            raise JobError(
                f"the topic {self.partition.topic} has cleanup.policy={policy}: the last batch of a query would be "
                f"forgotten. Set it: gregor configs --alter --topic {self.partition.topic} "
                "--add-config cleanup.policy=compact"
            )

    def read(self) -> bytes | None:
        """Return the last value of the key; None if it has none. It is exact after InitProducerId."""
        return self._read_to(READ_UNCOMMITTED)

    def read_stable(self) -> bytes | None:
        """Return the last value of the key below the last stable offset, which may not be the last one."""
        return self._read_to(READ_COMMITTED)

    def _read_to(self, isolation: str) -> bytes | None:
        end = list_offsets(self._cluster, {self.partition: LATEST}, isolation)[self.partition].offset
        retries, empty = self._cluster.retrying(), EmptyFetches(self._cluster, self.partition)
        if self._next_offset is None:
            self._next_offset = list_offsets(self._cluster, {self.partition: EARLIEST}, READ_UNCOMMITTED)[
                self.partition
            ].offset
        while self._next_offset < end:
            try:
                before = self._next_offset
                stable = self._fetch(before)
                if self._next_offset == before and stable >= end:
                    if empty.is_empty(before):
                        self._next_offset = end
                elif self._next_offset == before:
                    raise KafkaFailure(
                        ErrorCode.UNSTABLE_OFFSET_COMMIT,
                        f"an open transaction of another query keeps {self.partition.topic}-0 from being read beyond "
                        f"offset {stable}; `gregor transactions find-hanging` lists it if its producer is gone",
                    )
            except KafkaFailure as failure:
                empty.forget()
                retries.after(failure)
        return self._value

    def _exists(self) -> bool:
        topic = self._cluster.topics([self.partition.topic]).get(self.partition.topic)
        if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        self._cluster.leader(*self.partition)
        return True

    def _create(self) -> None:
        controller = self._cluster.controller()
        lowest, highest = _CREATE_TOPICS_VERSIONS
        topic = CreateTopicsRequest.CreatableTopic(name=self.partition.topic, num_partitions=1, replication_factor=-1)
        topic.configs = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=_CONFIGS[key]) for key in _CONFIGS]
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._cluster.settings.request_timeout_ms)
        response = self._cluster.exchange(
            controller, request, self._cluster.version(controller, CreateTopicsRequest, highest, lowest)
        )
        code = response.topics[0].error_code
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaFailure(
                code,
                f"the topic {self.partition.topic} was not created: {response.topics[0].error_message or 'refused'}",
            )

    def _cleanup_policy(self) -> str:
        topic = self.partition.topic
        leader = self._cluster.leader(*self.partition)
        return topic_configs(self._cluster, topic, [_CLEANUP_POLICY], leader)[_CLEANUP_POLICY]

    def _fetch(self, offset: int) -> int:
        """Read on from an offset; return the last stable offset."""
        leader = self._cluster.leader(*self.partition)
        lowest, highest = _FETCH_VERSIONS
        part = FetchRequest.FetchPartition(
            partition=self.partition.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=self._cluster.settings.fetch_wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=1,
            topics=[FetchRequest.FetchTopic(topic=self.partition.topic, partitions=[part])],
        )
        response = self._cluster.exchange(leader, request, self._cluster.version(leader, FetchRequest, highest, lowest))
        if response.error_code:
            raise KafkaFailure(response.error_code, f"{self.partition.topic}-0 is not readable")
        raise_if_throttled(response)
        data = response.responses[0].partitions[0]
        if data.error_code:
            raise KafkaFailure(data.error_code, f"{self.partition.topic}-0 is not readable from offset {offset}")
        self._note(data, offset)
        return int(data.last_stable_offset)

    def _note(self, data: FetchResponse.PartitionData, offset: int) -> None:
        """Keep the last value of the key that is not of an aborted transaction."""
        aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
        open_aborted: set[int] = set()
        assert data.records is None or isinstance(data.records, bytes | bytearray | memoryview)
        for batch in iter_batches(data.records or b""):
            while aborted and aborted[0][0] <= batch.last_offset:
                open_aborted.add(aborted.pop(0)[1])
            if batch.is_control:
                if batch.record_count and control_type(next(batch.records())) == ABORT:
                    open_aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in open_aborted):
                for record in batch.records():
                    if record.offset >= offset and record.key == self._key:
                        self._value = record.value
            self._next_offset = max(offset, batch.next_offset)
