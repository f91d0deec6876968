"""Requests of old versions, one after the other, for two brokers to answer, and the parts of answers that must be
equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gregor.protocol.messages as m
from gregor.protocol.errors import ErrorCode
from gregor.protocol.records.batch import MAGIC_AT, build_batch
from gregor.protocol.records.message_sets import iter_messages
from tests.compat.old_message_sets import NOW_MS
from tests.support.wire import RawConnection

Make = Callable[["Asked"], m.ApiMessage]
Step = tuple[str, int, Make]

SESSION_MS = 60_000
NOT_COMPARED = {
    *("host", "port", "brokers", "cluster_id", "client_host", "leader", "member_id", "error_message", "session_id"),
    *("topic_id", "aborted_transactions", "throttle_time_ms"),
}


def filled_topics() -> dict[str, list[bytes]]:
    """By name: the batches in each; of offsets 0 to 2 and 3 to 5."""
    return {
        name: [
            bytes(build_batch([(b"k", b"%d" % at)] * 3, timestamp_ms=NOW_MS + at, compression=codec)) for at in (0, 1)
        ]
        for name, codec in (("filled", 0), ("zstd", 4))
    }


class Asked:
    """One broker, and the name it gave to the member that joined last."""

    def __init__(self, wire: RawConnection) -> None:
        self._wire = wire
        self.member = ""

    def ask(self, make: Make, version: int) -> Any:
        answer = self._wire.ask(make(self), version)
        if isinstance(answer, m.JoinGroupResponse):
            if not answer.error_code:
                self.member = answer.member_id
            return ErrorCode(answer.error_code), answer.generation_id, answer.protocol_name, len(answer.members)
        return _comparable(answer)


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(map(_comparable, value), key=repr)
    if isinstance(value, m.FetchResponse.PartitionData):
        # librdkafka fails on null beside an error, so gregor answers with empty records instead. Apache Kafka returns
        # no more bytes than the log has there, and old formats need more: the number of messages differs.
        value.records = consumed(bytes(value.records or b""))[:2]
    names = [name for of in type(value).__mro__ for name in getattr(of, "__slots__", ())]
    if not names:
        return value
    found = {name: _comparable(getattr(value, name)) for name in names if name not in NOT_COMPARED}
    return {**found, "error_code": ErrorCode(found["error_code"])} if "error_code" in found else found


def consumed(records: bytes) -> list[Any]:
    """Return the messages that an old consumer finds in an answer, and the bytes of record batches.

    The part of a message with which Apache Kafka fills the answer up is left out.
    """
    if not records or records[MAGIC_AT] == 2:
        return [records] if records else []
    end = 0
    while len(records) - end >= 12:
        next_end = end + 12 + int.from_bytes(records[end + 8 : end + 12])
        if next_end > len(records):
            break
        end = next_end
    return list(iter_messages(records[:end]))


def _list_offsets(topic: str, partition: int, timestamp: int, count: int = 1) -> m.ApiMessage:
    make = m.ListOffsetsRequest
    part = make.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, max_num_offsets=count)
    return make(replica_id=-1, topics=[make.ListOffsetsTopic(name=topic, partitions=[part])])


def _fetch(topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> m.ApiMessage:
    make = m.FetchRequest
    part = make.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    wanted = make.FetchTopic(topic=topic, partitions=[part])
    return make(replica_id=-1, max_wait_ms=0, min_bytes=1, topics=[wanted])


def _commit(
    group: str, offset: int, *, topic: str = "filled", partition: int = 0, generation: int = -1, **fields: Any
) -> m.ApiMessage:
    make = m.OffsetCommitRequest
    metadata = fields.pop("metadata", "m")
    part = make.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    wanted = make.OffsetCommitRequestTopic(name=topic, partitions=[part])
    return make(group_id=group, generation_id_or_member_epoch=generation, topics=[wanted], **fields)


def _committed(group: str, topics: dict[str, list[int]] | None) -> m.ApiMessage:
    make = m.OffsetFetchRequest
    if topics is None:
        return make(group_id=group, topics=None)
    wanted = [make.OffsetFetchRequestTopic(name=name, partition_indexes=parts) for name, parts in topics.items()]
    return make(group_id=group, topics=wanted)


def _join(group: str, version: int, *, member: str = "", kind: str = "consumer", **fields: Any) -> Make:
    make = m.JoinGroupRequest
    protocol, session_ms = fields.get("protocol", "range"), fields.get("session_timeout_ms", SESSION_MS)
    some = [make.JoinGroupRequestProtocol(name=protocol, metadata=b"x")] if protocol else []
    return lambda asked: make(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms if version else -1,
        member_id=member,
        protocol_type=kind,
        protocols=some,
    )


def _create(name: str, partitions: int = 1, replicas: int = 1, *, config: str = "", where: str = "") -> m.ApiMessage:
    """`config`: key=value; `where`: a digit for each partition, its broker."""
    make = m.CreateTopicsRequest
    key, _, value = config.partition("=")
    topic = make.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            make.CreatableReplicaAssignment(partition_index=at, broker_ids=[int(node)]) for at, node in enumerate(where)
        ],
        configs=[make.CreatableTopicConfig(name=key, value=value)] if key else [],
    )
    return make(topics=[topic], timeout_ms=10_000)


def other_requests() -> Iterator[Step]:
    """Yield all requests but Produce. Later steps rely on the effects of earlier ones."""
    yield from _of_topics()
    yield from _of_reads()
    yield from _of_offsets()
    for version in range(3):
        yield from _of_a_member(version)
    yield from _of_groups()
    yield from _of_deleted_records()


def _each(name: str, versions: Iterable[int], make: Callable[[int], m.ApiMessage]) -> Iterator[Step]:
    for version in versions:
        yield name, version, lambda asked, version=version: make(version)  # type: ignore[misc]


def _of_topics() -> Iterator[Step]:
    def metadata(*names: str) -> Callable[[int], m.ApiMessage]:
        topics = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        return lambda version: m.MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4)

    yield from _each("metadata", range(9), metadata("filled"))
    yield from _each("metadata of all", range(1, 9), lambda version: m.MetadataRequest(topics=None))
    yield from _each("metadata of none", range(1, 9), metadata())
    yield from _each("metadata of nothing", range(4, 9), metadata("absent"))
    yield from _each("metadata of a bad name", range(9), metadata("b ad"))
    yield from _each("metadata, twice", range(9), metadata("filled", "filled"))
    yield from _each("create", range(5), lambda version: _create(f"new-{version}", 2))
    yield from _each("create again", range(5), lambda version: _create(f"new-{version}", 2))
    yield from _each("create a bad name", range(5), lambda version: _create("b ad"))
    yield from _each("create three replicas", range(5), lambda version: _create(f"r-{version}", 1, 3))
    yield from _each("create no partitions", range(5), lambda version: _create(f"z-{version}", 0))
    yield from _each("create by default", range(5), lambda version: _create(f"m-{version}", -1, -1))
    yield from _each("create with junk", range(5), lambda version: _create(f"c-{version}", config="no.such=1"))
    yield from _each("create there", range(5), lambda version: _create(f"a-{version}", -1, -1, where="00"))
    yield from _each("create both ways", range(5), lambda version: _create(f"b-{version}", 2, 1, where="0"))
    yield from _each("create nowhere", range(5), lambda version: _create(f"o-{version}", -1, -1, where="9"))
    delete = m.DeleteTopicsRequest
    yield from _each(
        "delete", range(4), lambda version: delete(topic_names=[f"new-{version}", "absent"], timeout_ms=9999)
    )


def _of_reads() -> Iterator[Step]:
    for time in (-1, -2, -3, -7, 0, NOW_MS, NOW_MS + 1, NOW_MS + 2):
        yield from _each(f"offset at {time}", range(8), lambda version, time=time: _list_offsets("filled", 0, time))  # type: ignore[misc]
    yield from _each("five offsets", [0], lambda version: _list_offsets("filled", 0, -1, 5))
    yield from _each("no offsets", [0], lambda version: _list_offsets("filled", 0, -1, 0))
    yield from _each("offset of nothing", range(8), lambda version: _list_offsets("absent", 0, -1))
    yield from _each("offset of no partition", range(8), lambda version: _list_offsets("filled", 9, -1))
    for offset in (-1, 6, 7):
        yield from _each(f"fetch {offset}", range(12), lambda version, offset=offset: _fetch("filled", 0, offset))  # type: ignore[misc]
    # Also from the middle of a batch.
    for offset in (0, 2, 3, 5):
        yield from _each(f"fetch {offset}", range(4), lambda version, offset=offset: _fetch("filled", 0, offset))  # type: ignore[misc]
    yield from _each("fetch zstd", range(12), lambda version: _fetch("zstd", 0, 0))
    yield from _each("fetch of nothing", range(12), lambda version: _fetch("absent", 0, 0))
    yield from _each("fetch of no partition", range(12), lambda version: _fetch("filled", 9, 0))
    epochs = m.OffsetForLeaderEpochRequest
    parts = [epochs.OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (0, 1, -1)]
    topics = [epochs.OffsetForLeaderTopic(topic="filled", partitions=parts)]
    yield from _each("epochs", range(4), lambda version: epochs(replica_id=-2, topics=topics))


def _of_offsets() -> Iterator[Step]:
    commits, fetches = range(1, 9), range(1, 8)
    yield from _each("commit", commits, lambda version: _commit("simple", version))
    yield from _each("commit to nothing", commits, lambda version: _commit("simple", 1, topic="absent"))
    yield from _each("commit to no partition", commits, lambda version: _commit("simple", 1, partition=7))
    yield from _each("commit of no member", commits, lambda version: _commit("simple", 1, generation=4, member_id="x"))
    yield from _each("commit of a name", commits, lambda version: _commit("simple", 1, member_id="x"))
    yield from _each("commit below 0", commits, lambda version: _commit("simple", -5))
    yield from _each("commit no metadata", commits, lambda version: _commit("simple", 3, metadata=None))
    yield from _each("commit much metadata", commits, lambda version: _commit("simple", 3, metadata="x" * 5000))
    yield from _each("commit to no group", commits, lambda version: _commit("", 3))
    yield from _each("committed", fetches, lambda version: _committed("simple", {"filled": [0, 8], "absent": [0]}))
    yield from _each("all committed", range(2, 8), lambda version: _committed("simple", None))
    yield from _each("none committed", fetches, lambda version: _committed("simple", {}))
    yield from _each("committed by nobody", fetches, lambda version: _committed("nobody", {"filled": [0]}))
    yield from _each("committed by no group", fetches, lambda version: _committed("", {"filled": [0]}))
    yield from _each("coordinator", range(4), lambda version: m.FindCoordinatorRequest(key="simple"))
    yield from _each("coordinator of no group", range(4), lambda version: m.FindCoordinatorRequest(key=""))


def _of_a_member(version: int) -> Iterator[Step]:
    group = f"joined-{version}"

    def sync(generation: int) -> Make:
        make = m.SyncGroupRequest
        return lambda asked: make(
            group_id=group,
            generation_id=generation,
            member_id=asked.member,
            assignments=[make.SyncGroupRequestAssignment(member_id=asked.member, assignment=b"abc")],
        )

    def beat(generation: int, member: str = "") -> Make:
        make = m.HeartbeatRequest
        return lambda asked: make(group_id=group, generation_id=generation, member_id=member or asked.member)

    def commit(generation: int) -> Make:
        return lambda asked: _commit(group, 1, generation=generation, member_id=asked.member)

    def leave(member: str = "") -> Make:
        return lambda asked: m.LeaveGroupRequest(group_id=group, member_id=member or asked.member)

    def describe(asked: Asked) -> m.ApiMessage:
        return m.DescribeGroupsRequest(groups=[group, "nobody", "simple"])

    def delete(asked: Asked) -> m.ApiMessage:
        return m.DeleteGroupsRequest(groups_names=[group, "nobody"])

    yield "join", version, _join(group, version)
    yield "beat before the sync", version, beat(1)
    yield "commit before the sync", version + 1, commit(1)
    yield "sync", version, sync(1)
    yield "sync of another generation", version, sync(7)
    yield "beat", version, beat(1)
    yield "beat of another generation", version, beat(5)
    yield "beat of nobody", version, beat(1, "who")
    yield "commit of a member", version + 1, commit(1)
    yield "commit of another generation", version + 1, commit(3)
    yield "commit from outside", version + 1, lambda asked: _commit(group, 1)
    yield "describe", version, describe
    yield "join by another kind", version, _join(group, version, kind="connect")
    yield "join by another protocol", version, _join(group, version, protocol="other")
    yield "leave of nobody", version, leave("who")
    yield "delete", 0, delete
    yield "leave", version, leave()
    yield "leave again", version, leave()
    yield "describe what is empty", version, describe
    yield "delete what is empty", 0, delete


def _of_groups() -> Iterator[Step]:
    for version in range(6):
        yield "join as nobody", version, _join(f"g-{version}", version, member="who")
        yield "join without protocols", version, _join(f"g-{version}", version, protocol="")
        yield "join without a kind", version, _join(f"g-{version}", version, kind="")
        yield "join for too short", version, _join(f"g-{version}", version, session_timeout_ms=10)
        yield "join for too long", version, _join(f"g-{version}", version, session_timeout_ms=10**8)
        yield "join no group", version, _join("", version)
    beat, sync, leave = m.HeartbeatRequest, m.SyncGroupRequest, m.LeaveGroupRequest
    yield from _each("beat, no group", range(4), lambda version: beat(group_id="no", generation_id=1, member_id="x"))
    yield from _each("sync, no group", range(4), lambda version: sync(group_id="no", generation_id=1, member_id="x"))
    yield from _each("leave, no group", range(3), lambda version: leave(group_id="no", member_id="x"))


def _of_deleted_records() -> Iterator[Step]:
    make = m.DeleteRecordsRequest
    parts = [make.DeleteRecordsPartition(partition_index=at, offset=2) for at in (0, 4)]
    topics = [make.DeleteRecordsTopic(name="filled", partitions=parts)]
    yield from _each("delete records", range(2), lambda version: make(topics=topics, timeout_ms=9999))
    yield from _each("fetch what is deleted", range(12), lambda version: _fetch("filled", 0, 1))
    yield from _each("earliest offset", range(8), lambda version: _list_offsets("filled", 0, -2))
