"""Requests about topics and groups for gregor and Apache Kafka; both must answer with the same codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gregor.protocol.messages import (
    ApiMessage,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    OffsetDeleteRequest,
)

Assignment = dict[int, list[int]]


def create(*topics: Any, validate_only: bool = False) -> ApiMessage:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def topic(name: str, partitions: int = 1, replicas: int = 1, *assigned: Assignment, **configs: str | None) -> Any:
    make = CreateTopicsRequest.CreatableReplicaAssignment
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[make(partition_index=key, broker_ids=ids) for one in assigned for key, ids in one.items()],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def widen(name: str, count: int, *brokers: list[int], validate_only: bool = False) -> ApiMessage:
    make = CreatePartitionsRequest.CreatePartitionsAssignment
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(
        name=name, count=count, assignments=[make(broker_ids=ids) for ids in brokers] if brokers else None
    )
    return CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=validate_only)


def records(name: str, *places: tuple[int, int]) -> ApiMessage:
    make = DeleteRecordsRequest.DeleteRecordsPartition
    partitions = [make(partition_index=index, offset=offset) for index, offset in places]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=partitions)], timeout_ms=5000
    )


def delete(*topics: tuple[str | None, bytes]) -> ApiMessage:
    make = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(topics=[make(name=name, topic_id=key) for name, key in topics], timeout_ms=10_000)


def elect(kind: int, name: str, *partitions: int) -> ApiMessage:
    wanted = ElectLeadersRequest.TopicPartitions(topic=name, partitions=list(partitions))
    return ElectLeadersRequest(election_type=kind, topic_partitions=[wanted], timeout_ms=5000)


def described(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> ApiMessage:
    request = DescribeTopicPartitionsRequest
    return request(
        topics=[request.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def forgotten(group: str, name: str, *partitions: int) -> ApiMessage:
    request = OffsetDeleteRequest
    wanted = [request.OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return request(group_id=group, topics=[request.OffsetDeleteRequestTopic(name=name, partitions=wanted)])


NO_ID, ABSENT_ID = bytes(16), b"\x09" * 16

# The order matters: some requests need the effects of those before them.
REQUESTS: list[tuple[ApiMessage, int]] = [
    (create(topic("a.b"), topic("wide", 3), topic("table", cleanup_policy="compact")), 7),
    (create(topic("a.b")), 7),
    (create(topic("a_b")), 7),
    (create(topic("a_b"), validate_only=True), 7),
    (create(topic("defaults", -1, -1)), 4),
    (create(topic("x", 0), topic("y", -2), topic("z", 1, 0), topic("u", 1, -2), topic("v", 1, 2)), 7),
    (create(topic(""), topic("."), topic(".."), topic("a b"), topic("a/b"), topic("n" * 250), topic("ü")), 7),
    (create(topic("twice"), topic("twice"), topic("once")), 7),
    (create(topic("x", no_such="1"), topic("y", retention_ms="x"), topic("z", retention_ms=None)), 7),
    (create(topic("x", min_compaction_lag_ms="10", max_compaction_lag_ms="5")), 7),
    (create(topic("by.hand", -1, -1, {0: [0], 1: [0]})), 7),
    (create(topic("x", 2, -1, {0: [0], 1: [0]}), topic("y", -1, 1, {0: [0]}), topic("z", 1, 1, {0: [0]})), 7),
    (create(topic("x", -1, -1, {0: [0], 2: [0]}), topic("y", -1, -1, {1: [0]}), topic("z", -1, -1, {-1: [0]})), 7),
    (create(topic("x", -1, -1, {0: [7]}), topic("y", -1, -1, {0: [0, 0]}), topic("z", -1, -1, {0: []})), 7),
    (create(topic("x", -1, -1, {0: [0]}, {0: [0]})), 7),
    (create(topic("__cluster_metadata")), 7),
    (create(), 7),
    *((widen("wide", count), 3) for count in (-1, 0, 2, 3)),
    *((widen(name, 5), 3) for name in ("absent", "a/b")),
    (widen("wide", 5, [0]), 3),
    (widen("wide", 5, [0], [0], [0]), 3),
    *((widen("wide", 4, ids), 3) for ids in ([9], [0, 0], [], [0, 9])),
    (widen("wide", 9, validate_only=True), 3),
    (widen("wide", 4, [0]), 3),
    (records("wide", (0, -1), (1, 0), (2, 1), (3, -2), (77, 0), (-1, 0)), 2),
    (records("table", (0, 0)), 2),
    (records("absent", (0, 0)), 2),
    (records("a/b", (0, 0)), 2),
    *((elect(kind, "wide", 0, 99, -1), 2) for kind in (0, 1, 2)),
    (elect(0, "absent", 0), 2),
    (elect(0, "wide", 0), 0),
    *((described("wide", "a.b", limit=limit), 0) for limit in (-1, 0, 1, 2, 5)),
    *((described("wide", cursor=("wide", index)), 0) for index in (0, 2, 50, -1)),
    (described("wide", cursor=("zz", 0)), 0),
    (described("absent", "a/b", "wide", "wide"), 0),
    (forgotten("absent", "wide", 0), 0),
    (delete(("wide", NO_ID), ("wide", NO_ID)), 6),
    (delete((None, ABSENT_ID), (None, ABSENT_ID)), 6),
    (delete((None, ABSENT_ID), ("absent", NO_ID), ("a/b", NO_ID), ("", NO_ID), (None, NO_ID)), 6),
    (delete(("wide", ABSENT_ID)), 6),
    (delete(("wide", NO_ID), ("table", NO_ID), ("absent", NO_ID)), 6),
    (delete(), 6),
]


def codes(answer: Any) -> list[tuple[str, Any]]:
    """Names, numbers and error codes of an answer, wherever they stand in it, in an order of their own."""
    return sorted(_codes(answer, ""), key=repr)


def _codes(part: Any, where: str) -> Iterator[tuple[str, Any]]:
    # Partitions lie within their topic, so that its name is part of where they are.
    own = next((getattr(part, name) for name in ("name", "topic") if hasattr(part, name)), "")
    index = next((getattr(part, name) for name in ("partition_index", "partition_id") if hasattr(part, name)), "")
    here = f"{where}/{own}{index}"
    if hasattr(part, "error_code"):
        yield here, part.error_code
    for field in ("num_partitions", "replication_factor", "low_watermark"):
        if hasattr(part, field):
            yield f"{here} {field}", getattr(part, field)
    for field in ("topics", "results", "responses", "replica_election_results", "partitions", "partition_result"):
        for one in getattr(part, field, None) or ():
            yield from _codes(one, here)
    if (cursor := getattr(part, "next_cursor", None)) is not None:
        yield "cursor", (cursor.topic_name, cursor.partition_index)
