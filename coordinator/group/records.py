"""The records of `__consumer_offsets`, as bytes.

Key and value each begin with an int16, their version; the key's version also is the kind of the record:

====  ==================  ========================================  =================================================
key   value               key fields                                value fields, in the version that is written
====  ==================  ========================================  =================================================
0, 1  OffsetCommitValue   group string, topic string,               3: offset int64, leader epoch int32,
                          partition int32                           metadata string, commit timestamp int64
2     GroupMetadataValue  group string                              3: protocol type string, generation int32,
                                                                    protocol ?string, leader ?string,
                                                                    state timestamp int64, members array
3...                      groups of newer protocols (KIP-848, KIP-932, KIP-1071): not served, skipped
====  ==================  ========================================  =================================================

No value is a tombstone. Versions 3 are the newest that are not flexible, which tools of every age can read; an offset
with a retention of its own is written in version 1, the only one that has a field for it. Kafka:
GroupCoordinatorRecordSerde.
"""

import struct

from gregor.coordinator.result import Record
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
NO_TIMESTAMP = -1

_VERSION = struct.Struct(">h")
_PREFIXES = [_VERSION.pack(version) for version in range(4)]


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as they are written. Raises ValueError for names too long for the format."""
    key, value = record.key, record.value
    if isinstance(key, OffsetCommitKey):
        key_version, value_version = OFFSET_KEY_VERSION, OFFSET_VALUE_VERSION
        if value is not None and value.expire_timestamp != NO_TIMESTAMP:
            value_version = OFFSET_VALUE_VERSION_WITH_EXPIRY
    else:
        key_version, value_version = GROUP_KEY_VERSION, GROUP_VALUE_VERSION
    encoded = _PREFIXES[key_version] + key.encode(key_version)
    return encoded, None if value is None else _PREFIXES[value_version] + value.encode(value_version)


def decode_record(key: bytes | None, value: bytes | None) -> Record | None:
    """The record, or None for one of a kind that is not served. Raises MalformedMessage."""
    if key is None or len(key) < _VERSION.size:
        raise MalformedMessage("a record without the version of its key")
    (key_version,) = _VERSION.unpack_from(key)
    key_class: type[OffsetCommitKey | GroupMetadataKey]
    value_class: type[OffsetCommitValue | GroupMetadataValue]
    if OffsetCommitKey.MIN_VERSION <= key_version <= OffsetCommitKey.MAX_VERSION:
        key_class, value_class = OffsetCommitKey, OffsetCommitValue
    elif key_version == GROUP_KEY_VERSION:
        key_class, value_class = GroupMetadataKey, GroupMetadataValue
    else:
        return None
    decoded_key, _ = key_class.decode(key, key_version, _VERSION.size)
    if value is None:
        return Record(decoded_key, None)
    if len(value) < _VERSION.size:
        raise MalformedMessage("a value without version")
    (value_version,) = _VERSION.unpack_from(value)
    if value_version < 0:
        raise MalformedMessage(f"a value of version {value_version}")
    # A version that is newer than we know can be read as the newest we know: since version 4 only tags are added.
    readable = min(value_version, value_class.MAX_VERSION)
    decoded_value, _ = value_class.decode(value, readable, _VERSION.size)
    return Record(decoded_key, decoded_value)


def java_length(text: str) -> int:
    """The length of a string as Java counts it: in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2
