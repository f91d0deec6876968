"""Offsets by time of many partitions (ListOffsets), and the offsets that a group commits (OffsetCommit)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListOffsetsRequest, OffsetCommitRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster, CoordinatorKind
from gregor.spark_jobs.client.failure import KafkaFailure, decisive
from gregor.spark_jobs.client.settings import READ_COMMITTED
from gregor.spark_jobs.client.topics import Topic

LATEST = -1
EARLIEST = -2
UNKNOWN_OFFSET = -1

_LIST_OFFSETS_VERSIONS = 2, 7
"""2: isolation level (Kafka 0.11). 8 and later add only times that are not used here."""
_OFFSET_COMMIT_VERSIONS = 2, 9
"""10 names topics by id only."""


class OffsetAndTimestamp(NamedTuple):
    """The offset found, UNKNOWN_OFFSET if no record is as late; the timestamp of its record if a time was given."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: str, may_be_missing: bool = False
) -> Mapping[TopicPartition, OffsetAndTimestamp]:
    """Return for each partition its LATEST or EARLIEST offset, or that of the first record not older than a timestamp.

    With isolation read_committed LATEST is the last stable offset. A retry names only the partitions that failed. A
    partition that does not exist is retried until the deadline and then an error; if it `may_be_missing`, it is left
    out as soon as the metadata does not describe it.
    """
    left = dict(wanted)
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    retries = cluster.retrying()
    while left:
        failure = _list_once(cluster, left, isolation, found, may_be_missing)
        for partition in found.keys() & left.keys():
            del left[partition]
        if failure is not None:
            retries.after(failure)
    return found


def _list_once(
    cluster: Cluster,
    wanted: dict[TopicPartition, int],
    isolation: str,
    found: dict[TopicPartition, OffsetAndTimestamp],
    may_be_missing: bool,
) -> KafkaFailure | None:
    """Send one request to each leader; add the offsets to `found` and return one of the failures.

    Partitions that may be missing, and are, are removed from `wanted`.
    """
    failures: list[KafkaFailure] = []
    by_leader: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
    try:
        described = cluster.topics(sorted({partition.topic for partition in wanted}))
    except KafkaFailure as failure:
        return failure
    if may_be_missing:
        for partition in [partition for partition in wanted if _is_missing(described, partition)]:
            del wanted[partition]
    for partition, time_ms in wanted.items():
        try:
            by_leader[cluster.leader(*partition)][partition] = time_ms
        except KafkaFailure as failure:
            failures.append(failure)
    for leader, partitions in by_leader.items():
        try:
            failures += _list_at(cluster, leader, partitions, isolation, found)
        except KafkaFailure as failure:
            failures.append(failure)
    return decisive(failures)


def _is_missing(described: Mapping[str, Topic], partition: TopicPartition) -> bool:
    topic = described.get(partition.topic)
    if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return True
    return not topic.error_code and partition.partition not in topic.partitions


def _list_at(
    cluster: Cluster,
    leader: int,
    wanted: Mapping[TopicPartition, int],
    isolation: str,
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> list[KafkaFailure]:
    lowest, highest = _LIST_OFFSETS_VERSIONS
    version = cluster.version(leader, ListOffsetsRequest, highest, lowest)
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for (topic, partition), time_ms in wanted.items():
        part = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition,
            timestamp=time_ms,
            current_leader_epoch=cluster.partition(topic, partition).leader_epoch,
        )
        topics.setdefault(topic, ListOffsetsRequest.ListOffsetsTopic(name=topic)).partitions.append(part)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=int(isolation == READ_COMMITTED), topics=list(topics.values())
    )
    failures = []
    for answered in cluster.exchange(leader, request, version).topics:
        for part in answered.partitions:
            key = TopicPartition(answered.name, part.partition_index)
            if part.error_code:
                failures.append(
                    KafkaFailure(part.error_code, f"the offsets of {key.topic}-{key.partition} are not available")
                )
            else:
                found[key] = OffsetAndTimestamp(part.offset, part.timestamp, part.leader_epoch)
    return failures


def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Commit the offsets of a group without members, as a consumer does that assigns partitions to itself.

    Return the partitions that do not exist any more, whose offsets are not committed. Raise KafkaFailure if the group
    has members, or refuses an offset for another reason.
    """
    if not offsets:
        return []
    return cluster.retrying().run(lambda: _commit_once(cluster, group_id, offsets))


def _commit_once(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    coordinator = cluster.coordinator(group_id, CoordinatorKind.GROUP)
    lowest, highest = _OFFSET_COMMIT_VERSIONS
    version = cluster.version(coordinator, OffsetCommitRequest, highest, lowest)
    topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(topic, OffsetCommitRequest.OffsetCommitRequestTopic(name=topic)).partitions.append(part)
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=-1,
        topics=list(topics.values()),
    )
    gone = []
    for answered in cluster.exchange(coordinator, request, version).topics:
        for part in answered.partitions:
            if part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                gone.append(TopicPartition(answered.name, part.partition_index))
            elif part.error_code:
                raise KafkaFailure(part.error_code, _commit_text(group_id, answered.name, part))
    return gone


def _commit_text(group_id: str, topic: str, part: object) -> str:
    code = getattr(part, "error_code", 0)
    text = f"the group {group_id!r} did not accept the offset of {topic}-{getattr(part, 'partition_index', -1)}"
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
        text += ": the group has members of its own; give another name"
    return text
