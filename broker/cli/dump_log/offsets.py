"""Records of `__consumer_offsets` as JSON, in the form of Apache Kafka's DumpLogSegments with --offsets-decoder.

Fields have the names of Kafka's message definitions. Bytes are base64, except that subscription and assignment of a
member of protocol type "consumer" are decoded (ConsumerProtocolSubscription and ConsumerProtocolAssignment, whose
versions add fields at the end).
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

from gregor.broker.cli.dump_log.records import Contents
from gregor.broker.cli.errors import CommandError
from gregor.coordinator.group.records import decode_record
from gregor.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from gregor.protocol.records.batch import Record

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

OFFSET_VALUE_TOPIC_ID_FROM = 4


def offsets_contents(record: Record) -> Contents:
    """Return key and value of one record; records of other kinds of groups are named as unknown."""
    if record.key is None:
        raise CommandError(
            f"the record at offset {record.offset} has no key; --offsets-decoder is for __consumer_offsets only."
        )
    try:
        kind = _version(record.key)
        decoded = decode_record(record.key, record.value)
        if decoded is None:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        key = decoded.key
        if isinstance(key, OffsetCommitKey):
            named = {"group": key.group, "topic": key.topic, "partition": key.partition}
        else:
            named = {"group": key.group}
        shown_key = _json({"type": str(kind), "data": named})
        if decoded.value is None or record.value is None:
            return shown_key, "<DELETE>"
        version = _version(record.value)
        value = decoded.value
        data = _offset(value, version) if isinstance(value, OffsetCommitValue) else _group(value, version)
        return shown_key, _json({"version": str(version), "data": data})
    except (MalformedMessage, struct.error) as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _offset(value: OffsetCommitValue, version: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"offset": value.offset}
    if version >= 3:
        fields["leaderEpoch"] = value.leader_epoch
    fields["metadata"] = value.metadata
    fields["commitTimestamp"] = value.commit_timestamp
    if version == 1:
        fields["expireTimestamp"] = value.expire_timestamp
    if version >= OFFSET_VALUE_TOPIC_ID_FROM and any(value.topic_id):
        fields["topicId"] = _uuid(value.topic_id)
    return fields


def _uuid(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _group(value: GroupMetadataValue, version: int) -> dict[str, Any]:
    consumers = value.protocol_type == CONSUMER_PROTOCOL_TYPE
    fields: dict[str, Any] = {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
    }
    if version >= 2:
        fields["currentStateTimestamp"] = value.current_state_timestamp
    fields["members"] = [_member(member, version, consumers) for member in value.members]
    return fields


def _member(member: GroupMetadataValue.MemberMetadata, version: int, consumer: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"memberId": member.member_id}
    if version >= 3:
        fields["groupInstanceId"] = member.group_instance_id
    fields["clientId"] = member.client_id
    fields["clientHost"] = member.client_host
    if version >= 1:
        fields["rebalanceTimeout"] = member.rebalance_timeout
    fields["sessionTimeout"] = member.session_timeout
    fields["subscription"] = _decoded(member.subscription, _subscription) if consumer else _base64(member.subscription)
    fields["assignment"] = _decoded(member.assignment, _assignment) if consumer else _base64(member.assignment)
    return fields


class _Reader:
    """Reader of the fields of the consumer protocol; raises struct.error or ValueError if data is missing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def _number(self, layout: struct.Struct) -> int:
        (number,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return int(number)

    def string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._read(size).decode()

    def octets(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self._read(size)

    def places(self) -> list[dict[str, Any]]:
        """Read topics with their partitions."""
        return [
            {"topic": self.string(), "partitions": [self.int32() for _ in range(self.count())]}
            for _ in range(self.count())
        ]

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= len(self._data):
            raise ValueError(f"a list of {count} items")
        return count

    def _read(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) < size:
            raise ValueError(f"{size} bytes expected, {len(data)} present")
        self._at += size
        return data


def _subscription(reader: _Reader) -> dict[str, Any]:
    version = min(reader.int16(), 3)
    fields: dict[str, Any] = {"topics": [reader.string() for _ in range(reader.count())]}
    fields["userData"] = _base64(reader.octets())
    if version >= 1:
        fields["ownedPartitions"] = reader.places()
    if version >= 2:
        fields["generationId"] = reader.int32()
    if version >= 3:
        fields["rackId"] = reader.string()
    return fields


def _assignment(reader: _Reader) -> dict[str, Any]:
    reader.int16()
    return {"assignedPartitions": reader.places(), "userData": _base64(reader.octets())}


def _decoded(data: bytes, read: Any) -> dict[str, Any] | str | None:
    """Return the decoded fields, or the bytes in base64 if they are something else."""
    try:
        fields: dict[str, Any] = read(_Reader(data))
        return fields
    except (struct.error, ValueError):
        return _base64(data)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _version(data: bytes) -> int:
    return int(_INT16.unpack_from(data)[0])


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
