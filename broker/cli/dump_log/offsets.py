"""Records of `__consumer_offsets` as JSON, in the form of Apache Kafka's DumpLogSegments with --offsets-decoder.

Fields have the names of Kafka's message definitions. Bytes are base64, except that subscription and assignment of a
member of protocol type "consumer" are decoded (ConsumerProtocolSubscription and ConsumerProtocolAssignment, whose
versions add fields at the end).
"""

from __future__ import annotations

import base64
import struct
from typing import Any

from gregor.broker.cli.dump_log.coordinator_records import (
    Decoded,
    Fields,
    base64_text,
    coordinator_contents,
    version_of,
)
from gregor.broker.cli.dump_log.message_json import message_fields
from gregor.broker.cli.dump_log.records import Contents
from gregor.coordinator.group.records import decode_record
from gregor.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from gregor.protocol.messages import GroupMetadataValue, OffsetCommitValue
from gregor.protocol.records.batch import Record

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

OFFSET_VALUE_TOPIC_ID_FROM = 4


def offsets_contents(record: Record) -> Contents:
    """Return key and value of one record; records of other kinds of groups are named as unknown."""
    return coordinator_contents(record, "--offsets-decoder", "__consumer_offsets", _decode)


def _decode(key: bytes, value: bytes | None) -> Decoded | None:
    decoded = decode_record(key, value)
    if decoded is None:
        return None
    named = message_fields(decoded.key, decoded.key.MAX_VERSION)
    if decoded.value is None or value is None:
        return Decoded(named, None)
    version = version_of(value)
    if isinstance(decoded.value, OffsetCommitValue):
        return Decoded(named, _offset(decoded.value, version))
    if isinstance(decoded.value, GroupMetadataValue):
        return Decoded(named, _group(decoded.value, version))
    return Decoded(named, message_fields(decoded.value, version))


def _offset(value: OffsetCommitValue, version: int) -> Fields:
    fields: Fields = {"offset": value.offset}
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


def _group(value: GroupMetadataValue, version: int) -> Fields:
    consumers = value.protocol_type == CONSUMER_PROTOCOL_TYPE
    fields: Fields = {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
    }
    if version >= 2:
        fields["currentStateTimestamp"] = value.current_state_timestamp
    fields["members"] = [_member(member, version, consumers) for member in value.members]
    return fields


def _member(member: GroupMetadataValue.MemberMetadata, version: int, consumer: bool) -> Fields:
    fields: Fields = {"memberId": member.member_id}
    if version >= 3:
        fields["groupInstanceId"] = member.group_instance_id
    fields["clientId"] = member.client_id
    fields["clientHost"] = member.client_host
    if version >= 1:
        fields["rebalanceTimeout"] = member.rebalance_timeout
    fields["sessionTimeout"] = member.session_timeout
    fields["subscription"] = (
        _decoded(member.subscription, _subscription) if consumer else base64_text(member.subscription)
    )
    fields["assignment"] = _decoded(member.assignment, _assignment) if consumer else base64_text(member.assignment)
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

    def partitions(self) -> list[Fields]:
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


def _subscription(reader: _Reader) -> Fields:
    version = min(reader.int16(), 3)
    fields: Fields = {"topics": [reader.string() for _ in range(reader.count())]}
    fields["userData"] = base64_text(reader.octets())
    if version >= 1:
        fields["ownedPartitions"] = reader.partitions()
    if version >= 2:
        fields["generationId"] = reader.int32()
    if version >= 3:
        fields["rackId"] = reader.string()
    return fields


def _assignment(reader: _Reader) -> Fields:
    reader.int16()
    return {"assignedPartitions": reader.partitions(), "userData": base64_text(reader.octets())}


def _decoded(data: bytes, read: Any) -> Fields | str | None:
    """Return the decoded fields, or the bytes in base64 if they are something else."""
    try:
        fields: Fields = read(_Reader(data))
        return fields
    except (struct.error, ValueError):
        return base64_text(data)
