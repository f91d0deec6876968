"""`gregor groups --history GROUP`: why the group rebalanced, from the records of `__gregor_rebalances`.

The records are read as any client reads a topic, so that every broker of the cluster may be the bootstrap server. Where
generations are missing between two records, a row shows that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.tables import Column, print_table
from gregor.broker.cli.wire import WireClient, check_code
from gregor.coordinator.history.records import KEPT, decode
from gregor.coordinator.history.texts import cause_text, member_text
from gregor.coordinator.partitioner import partition_of
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    RebalanceValue,
)
from gregor.protocol.records.batch import iter_batches
from gregor.protocol.topic_names import REBALANCES_TOPIC

FETCH_BYTES = 4 * 1024 * 1024
FETCH_WAIT_MS = 500
NO_SESSION = -1
EARLIEST = -2
CONSUMER = -1

COLUMNS = [
    Column("GENERATION", 10, number=True),
    Column("BEGAN", 23),
    Column("MS", 6, number=True),
    Column("MEMBERS", 7, number=True),
    Column("MOVED", 5, number=True),
    Column("WITHOUT-OWNER-MS", 16, number=True),
    Column("TRIGGER", 22),
    Column("CONSUMER-ID", 15),
    Column("CLIENT-ID", 15),
    Column("HOST", 15),
    Column("DETAIL"),
]


OTHER_COORDINATOR = (
    "not recorded: a broker of Apache Kafka was the coordinator, or the coordinator ended before it wrote them"
)


class Gap(NamedTuple):
    """Generations or epochs of which there is no record."""

    first: int
    last: int
    why: str


class _Partition(NamedTuple):
    """A partition of the topic."""

    topic_id: Uuid
    number: int
    leader: int


def show_history(bootstrap: str, config_file: str | None, group: str, *, as_json: bool, verbose: bool) -> int:
    """Print the history of a group; raise CommandError if there is none."""
    with WireClient(bootstrap, config_file) as client:
        rebalances = read_history(client, group)
    if not rebalances:
        raise CommandError(
            f"there is no history of group '{group}': it has not rebalanced under a coordinator of gregor, or "
            "gregor.rebalance.history.enable is false."
        )
    entries = with_gaps(rebalances)
    if as_json:
        print(json.dumps({"group": group, "rebalances": [to_json(one) for one in entries]}))
    elif verbose:
        print("\n".join(text for one in entries for text in details(one)))
    else:
        print_table(COLUMNS, [row(one) for one in entries])
    return 0


# --- the records


def read_history(client: WireClient, group: str) -> list[RebalanceValue]:
    """Return the rebalances of a group, the oldest first."""
    partition = _partition_of(client, group)
    found: dict[int, RebalanceValue] = {}
    if partition is not None:
        for key, value in _records(client, partition):
            try:
                slot = decode(key, value)
            except MalformedMessage:
                continue  # a record of another program
            if slot is None or slot.group_id != group:
                continue
            if slot.value is None:
                found.pop(slot.slot, None)
            else:
                found[slot.slot] = slot.value
    return sorted(found.values(), key=lambda value: (value.began_ms, value.epoch))


def recent_rebalances(client: WireClient, since_ms: int, mute: Collection[int]) -> dict[str, list[RebalanceValue]]:
    """Return the rebalances of each group that began since then, as far as the leaders answer that are not `mute`."""
    found: dict[str, list[RebalanceValue]] = {}
    for partition in _partitions(client):
        if partition.leader < 0 or partition.leader in mute:
            continue
        with suppress(CommandError):
            for key, value in _records(client, partition, since_ms):
                with suppress(MalformedMessage):
                    slot = decode(key, value)
                    if slot is not None and slot.value is not None and slot.value.began_ms >= since_ms:
                        found.setdefault(slot.group_id, []).append(slot.value)
    return found


def _partition_of(client: WireClient, group: str) -> _Partition | None:
    partitions = _partitions(client)
    if not partitions:
        return None
    number = partition_of(group, len(partitions))
    found = next(one for one in partitions if one.number == number)
    if found.leader < 0:
        raise CommandError(f"{REBALANCES_TOPIC}-{number}, which has the history of the group, has no leader now.")
    return found


def _partitions(client: WireClient) -> list[_Partition]:
    """Return the partitions of the topic, none where there is no such topic."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=REBALANCES_TOPIC)]
    metadata: MetadataResponse = client.send(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    (topic,) = metadata.topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    check_code(topic.error_code, f"topic {REBALANCES_TOPIC} cannot be read")
    return [_Partition(topic.topic_id, one.partition_index, one.leader_id) for one in topic.partitions]


def _records(
    client: WireClient, partition: _Partition, since_ms: int = EARLIEST
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Read a partition up to its high watermark, from its first record on or from the first one of that time."""
    offset = _start_of(client, partition, since_ms)
    if offset < 0:
        return  # no record is as new
    end_offset = offset + 1
    while offset < end_offset:
        answer = _fetch(client, partition, offset)
        check_code(answer.error_code, f"{REBALANCES_TOPIC}-{partition.number} cannot be read")
        end_offset = answer.high_watermark
        reached = offset
        for batch in iter_batches(cast("bytes | memoryview", answer.records or b"")):
            reached = batch.next_offset
            if not batch.is_control:
                for record in batch.records():
                    if record.offset >= offset:
                        yield record.key, record.value
        if reached == offset:
            return
        offset = reached


def _start_of(client: WireClient, partition: _Partition, since_ms: int) -> int:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition.number, timestamp=since_ms)
    topic = ListOffsetsRequest.ListOffsetsTopic(name=REBALANCES_TOPIC, partitions=[wanted])
    request = ListOffsetsRequest(replica_id=CONSUMER, topics=[topic])
    response: ListOffsetsResponse = client.send(request, partition.leader)
    found = response.topics[0].partitions[0]
    check_code(found.error_code, f"{REBALANCES_TOPIC}-{partition.number} cannot be read")
    return found.offset


def _fetch(client: WireClient, partition: _Partition, offset: int) -> FetchResponse.PartitionData:
    request = FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        session_epoch=NO_SESSION,
        topics=[
            FetchRequest.FetchTopic(
                topic=REBALANCES_TOPIC,
                topic_id=partition.topic_id,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=partition.number, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
                    )
                ],
            )
        ],
    )
    while True:
        response: FetchResponse = client.send(request, partition.leader)
        check_code(response.error_code)
        if response.responses or not response.throttle_time_ms:
            break  # otherwise a quota is exceeded: the broker reads the next request when its time is over
    return response.responses[0].partitions[0]


# --- gaps


def with_gaps(rebalances: Sequence[RebalanceValue]) -> list[RebalanceValue | Gap]:
    """Insert what is missing. Records from before a deletion that a broker of Apache Kafka carried out may precede."""
    entries: list[RebalanceValue | Gap] = []
    last = 0 if len(rebalances) < KEPT else None
    if last == 0 and rebalances and rebalances[0].group_type == "consumer":
        last = 1  # a consumer group begins in this epoch, without a rebalance (KIP-1263)
    for one in rebalances:
        if last is not None and one.epoch > last + 1:
            entries.append(Gap(last + 1, one.epoch - 1, _why(one, one.epoch - 1 - last)))
        entries.append(one)
        last = one.epoch
    return entries


def _why(after: RebalanceValue, missing: int) -> str:
    if after.not_recorded >= missing:
        return "not recorded: too many rebalances within a short time"
    why = OTHER_COORDINATOR
    return f"{why}; {after.not_recorded} of them came within a short time" if after.not_recorded else why


# --- how it is shown


def row(entry: RebalanceValue | Gap) -> list[object]:
    """The row of the table."""
    if isinstance(entry, Gap):
        return [_range(entry), *["-"] * 9, entry.why]
    cause = entry.causes[0] if entry.causes else RebalanceValue.Cause(trigger="unknown")
    more = max(entry.causes_count, len(entry.causes)) - 1
    details = [cause.detail, cause.reason and f"client reason: {cause.reason}", more > 0 and f"more causes: {more}"]
    if entry.outcome != "assigned":
        details.insert(0, entry.outcome)
    return [
        entry.epoch,
        _time(entry.began_ms),
        entry.ended_ms - entry.began_ms,
        entry.members_count,
        entry.moved,
        "-" if entry.without_owner_ms < 0 else entry.without_owner_ms,
        cause.trigger,
        cause.group_instance_id or cause.member_id or "-",
        cause.client_id or "-",
        cause.client_host or "-",
        "; ".join(str(one) for one in details if one) or "-",
    ]


def details(entry: RebalanceValue | Gap) -> Iterator[str]:
    """All that is known, one line for each thing."""
    if isinstance(entry, Gap):
        yield f"{_range(entry)}  {entry.why}"
        return
    assignor = f", {entry.protocol}" if entry.protocol else ""
    yield (
        f"{entry.epoch}  {_time(entry.began_ms)}  {entry.outcome} after {entry.ended_ms - entry.began_ms} ms, "
        f"members: {entry.members_count}{assignor}, coordinator {entry.coordinator_id}"
    )
    for cause in entry.causes:
        yield f"  cause: {_time(cause.at_ms)} {cause_text(cause)}"
    if entry.causes_count > len(entry.causes):
        yield f"  more causes: {entry.causes_count - len(entry.causes)}"
    if entry.joined_ms >= 0 and entry.ended_ms > entry.joined_ms:
        yield f"  the members had joined after {entry.joined_ms - entry.began_ms} ms"
    for member in entry.members:
        verb = "joined" if member.joined else "was removed"
        owns = f", partitions: {member.partitions}" if member.joined and member.partitions >= 0 else ""
        yield f"  {member_text(member)} {verb} after {member.waited_ms} ms{owns}"
    if entry.partitions >= 0:
        changes = f"moved {entry.moved}, added {entry.added}, removed {entry.removed}"
        yield f"  partitions: {entry.partitions}, {changes}"
    elif entry.moved:
        yield f"  members with another assignment: {entry.moved}"
    for move in entry.moves:
        numbers = ",".join(map(str, move.partitions))
        yield f"    {move.topic}:{numbers} from {move.from_member or 'no member'} to {move.to_member or 'no member'}"
    if entry.without_owner:
        yield f"  partitions without owner: {entry.without_owner}, for up to {entry.without_owner_ms} ms"


def to_json(entry: RebalanceValue | Gap) -> dict[str, Any]:
    """All fields, by the names of the record."""
    if isinstance(entry, Gap):
        return {"gap": {"first": entry.first, "last": entry.last, "why": entry.why}}
    fields = _fields(
        entry,
        (
            *("group_type", "epoch", "outcome", "protocol_type", "protocol", "coordinator_id", "began_ms"),
            *("joined_ms", "ended_ms", "not_recorded", "causes_count", "members_count", "partitions", "moved"),
            *("added", "removed", "without_owner", "without_owner_ms"),
        ),
    )
    who = ("member_id", "group_instance_id", "client_id", "client_host")
    fields["causes"] = [_fields(one, ("trigger", "at_ms", *who, "reason", "detail")) for one in entry.causes]
    fields["members"] = [_fields(one, (*who, "waited_ms", "joined", "partitions")) for one in entry.members]
    fields["moves"] = [_fields(one, ("topic", "from_member", "to_member", "partitions")) for one in entry.moves]
    return fields


def _fields(message: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}


def _range(gap: Gap) -> str:
    return str(gap.first) if gap.first == gap.last else f"{gap.first}-{gap.last}"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
