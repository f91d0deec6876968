"""The records of `__consumer_offsets`, as bytes.

Key and value each begin with an int16, their version; the key's version also is the kind of the record:

====  ================================  ==========================  ====================================================
key   value                             key fields                  value fields, in the version that is written
====  ================================  ==========================  ====================================================
0, 1  OffsetCommitValue                 group string, topic         3: offset int64, leader epoch int32,
                                        string, partition int32     metadata string, commit timestamp int64
2     GroupMetadataValue                group string                3: protocol type string, generation int32,
                                                                    protocol ?string, leader ?string,
                                                                    state timestamp int64, members array
3     ConsumerGroupMetadata             group string                0: epoch int32; tag 0 metadata hash int64
4     ConsumerGroupPartitionMetadata    group string                of brokers before 4.1: only its tombstone is written
5     ConsumerGroupMemberMetadata       group string, member        0: what the member sent in its heartbeats; tag 0
                                        string                      the protocols of a member of the classic protocol
6     ConsumerGroupTargetAssignment-    group string                0: assignment epoch int32; tag 0 timestamp int64
      Metadata
7     ConsumerGroupTargetAssignment-    group string, member        0: array of (topic id, partitions)
      Member                            string
8     ConsumerGroupCurrentMember-       group string, member        0: epoch int32, previous epoch int32, state int8,
      Assignment                        string                      assigned and pending revocation: arrays of
                                                                    (topic id, partitions; tag 0 their epochs)
16    ConsumerGroupRegularExpression    group string, regular       0: topics array of string, version int64,
                                        expression string           timestamp int64
9...  groups of other protocols (KIP-932, KIP-1071): not served, skipped
====  ================================  ==========================  ====================================================

No value is a tombstone. Versions 3 of the first two values are the newest that are not flexible, which tools of every
age can read; an offset with a retention of its own is written in version 1, the only one that has a field for it. The
values of kind 3 and later are flexible (KIP-848). Kafka: GroupCoordinatorRecordSerde.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

from gregor.coordinator.result import Record
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import (
    ApiMessage,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
NO_TIMESTAMP = -1

_VERSION = struct.Struct(">h")
_VERSION_WITH_EXPIRY = _VERSION.pack(OFFSET_VALUE_VERSION_WITH_EXPIRY)


class _Kind(NamedTuple):
    """A kind of record: the prefix and the version of the key and of the value, as they are written."""

    key_class: type[ApiMessage]
    value_class: type[ApiMessage]
    key_prefix: bytes
    value_prefix: bytes
    key_version: int
    value_version: int


def _kind(number: int, key_class: type[ApiMessage], value_class: type[ApiMessage], value_version: int = 0) -> _Kind:
    key_version = key_class.MAX_VERSION
    return _Kind(
        key_class, value_class, _VERSION.pack(number), _VERSION.pack(value_version), key_version, value_version
    )


_KINDS = {
    1: _kind(1, OffsetCommitKey, OffsetCommitValue, 3),
    2: _kind(2, GroupMetadataKey, GroupMetadataValue, 3),
    3: _kind(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: _kind(4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: _kind(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: _kind(6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: _kind(7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: _kind(8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: _kind(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
_KIND_OF: dict[type[Any], _Kind] = {kind.key_class: kind for kind in _KINDS.values()}
# An offset commit had key version 0 once, with the same fields.
_KINDS[0] = _KINDS[1]
_OFFSET_KEYS = (_VERSION.pack(0), _VERSION.pack(1))


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as they are written. Raises ValueError for names too long for the format."""
    key, value = record.key, record.value
    kind = _KIND_OF[type(key)]
    if kind.value_class is not OffsetCommitValue:
        encoded = _encoded(kind.key_prefix, key, kind.key_version)
    else:
        encoded = _encoded_offset_key(key.group, key.topic, key.partition)
        if value is not None and value.expire_timestamp != NO_TIMESTAMP:
            return encoded, _encoded(_VERSION_WITH_EXPIRY, value, OFFSET_VALUE_VERSION_WITH_EXPIRY)
    return encoded, None if value is None else _encoded(kind.value_prefix, value, kind.value_version)


def _encoded(prefix: bytes, message: Any, version: int) -> bytes:
    out = bytearray(prefix)
    message.encoders[version](message, out, None)
    return bytes(out)


@lru_cache(maxsize=4096)
def _encoded_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """A consumer commits the same partitions again and again."""
    kind = _KIND_OF[OffsetCommitKey]
    return _encoded(
        kind.key_prefix, OffsetCommitKey(group=group_id, topic=topic, partition=partition), kind.key_version
    )


def is_independent(key: bytes) -> bool:
    """Whether a key is that of an offset. The other kinds depend on each other: a record of a classic group ends a
    consumer group of the same id, and the reverse."""
    return key.startswith(_OFFSET_KEYS)


def decode_record(key: bytes | None, value: bytes | None) -> Record | None:
    """The record, or None for one of a kind that is not served. Raises MalformedMessage."""
    if key is None or len(key) < _VERSION.size:
        raise MalformedMessage("a record without the version of its key")
    (number,) = _VERSION.unpack_from(key)
    kind = _KINDS.get(number)
    if kind is None:
        return None
    decoded_key, _ = kind.key_class.decode(key, kind.key_version, _VERSION.size)
    if value is None:
        return Record(decoded_key, None)
    if len(value) < _VERSION.size:
        raise MalformedMessage("a value without version")
    (value_version,) = _VERSION.unpack_from(value)
    if value_version < 0:
        raise MalformedMessage(f"a value of version {value_version}")
    # A version that is newer than we know can be read as the newest we know: only tags are added to flexible ones.
    readable = min(value_version, kind.value_class.MAX_VERSION)
    decoded_value, _ = kind.value_class.decode(value, readable, _VERSION.size)
    return Record(decoded_key, decoded_value)


def java_length(text: str) -> int:
    """The length of a string as Java counts it: in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2
