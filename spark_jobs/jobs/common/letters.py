"""The tasks' side of the dead-letter topic: a function over Arrow arrays that produces the records.

Spark evaluates the annotations of the function, so that pyarrow is imported by the module.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import MetadataRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import ANY_BROKER, Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.batches import Headers
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.partitioner import Partitioner
from gregor.spark_jobs.sink.producer import Producer
from gregor.spark_jobs.sink.transactions import idempotent_identity

HEADER = "__connect.errors."
_METADATA_VERSIONS = 4, 12


def storing(job: str, topic: str, options: SinkOptions) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """Return the function of a task: of letters, null for a good row, to whether the row is good."""

    def store(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        letters: Letters | None = None
        with Cluster(options.settings) as cluster:
            for batch in batches:
                if batch.null_count < len(batch):
                    letters = letters or Letters(job, topic, options, cluster)
                    letters.store(batch.drop_null())
                yield pc.is_null(batch)

    return store


class Letters:
    """The producer of one task. Its first letter makes the topic, if the brokers permit that to any producer."""

    def __init__(self, job: str, topic: str, options: SinkOptions, cluster: Cluster) -> None:
        self._job, self._topic = job, topic
        try:
            count = cluster.retrying().run(lambda: _partition_count(cluster, topic))
        except KafkaFailure as failure:
            if failure.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise JobError(
                f"the dead-letter topic {topic} does not exist, and the brokers have not made it; create it: "
                f"gregor topics --create --topic {topic}"
            ) from failure
        self._partitioner = Partitioner({topic: count}, topic, random.randrange(count))
        self._producer = Producer(cluster, idempotent_identity(cluster), options)

    def store(self, rows: pa.Array) -> None:
        """Produce one record for each row, and wait until all are acknowledged; else raise JobError, so that the task
        fails."""
        records = pa.RecordBatch.from_arrays([rows.field("raw_key"), rows.field("raw_value")], ["key", "value"])
        partitions = self._partitioner.columns(records).partitions.to_pylist()
        letters = rows.to_pylist()
        try:
            for partition, row in zip(partitions, letters, strict=True):
                at = TopicPartition(self._topic, partition)
                self._producer.append(at, row["raw_key"], row["raw_value"], headers_of(row, self._job))
            self._producer.flush()
        except JobError as failure:
            raise JobError(_not_stored(letters, self._topic, failure)) from failure


def _partition_count(cluster: Cluster, topic: str) -> int:
    """Return the number of partitions of the topic, which is made if the brokers permit it."""
    found = cluster.topics([topic]).get(topic)
    if found is None or found.error_code:
        lowest, highest = _METADATA_VERSIONS
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
        cluster.exchange(ANY_BROKER, request, cluster.version(ANY_BROKER, MetadataRequest, highest, lowest))
        cluster.refresh()
    cluster.partition(topic, 0)
    return len(cluster.topics([topic])[topic].partitions)


def _not_stored(rows: Sequence[Mapping[str, Any]], topic: str, failure: JobError) -> str:
    """Return what has failed. The largest record is named, as it may be the cause."""
    sizes = [len(row["raw_key"] or b"") + len(row["raw_value"] or b"") for row in rows]
    largest = rows[sizes.index(max(sizes))]
    origin = f"{largest['topic']}-{largest['partition']} at offset {largest['offset']} with {max(sizes):,} bytes"
    cause = str(failure)
    if isinstance(failure, KafkaFailure) and failure.code == ErrorCode.MESSAGE_TOO_LARGE:
        cause = failure.text
    return f"{len(rows)} records were not stored in the dead-letter topic {topic}, the largest one {origin}: {cause}"


def headers_of(row: Mapping[str, Any], job: str) -> Headers:
    """Return the headers of a dead letter: those of the record, then its origin and the reason."""
    own = [(header["key"], header["value"]) for header in row.get("headers") or []]
    added = {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "connector.name": job,
        "exception.message": row["problem"],
    }
    return own + [(HEADER + name, str(value).encode()) for name, value in added.items()]
