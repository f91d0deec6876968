"""The records of `__gregor_rebalances`, as bytes: the last KEPT rebalances of each group.

Key: int16 version 0, group string, slot int16. The slot is the generation, or the group epoch, modulo KEPT, so that the
compaction of the log keeps the newest KEPT of a group. Value: int16 version, then RebalanceValue; none is a tombstone.
A generation that is missing between two others was not recorded: its coordinator was a broker of Apache Kafka, or there
were too many rebalances at once, or a broker ended before it had written it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import RebalanceKey, RebalanceValue

KEPT = 512
KEY_VERSION = 0
VALUE_VERSION = 0

_VERSION = struct.Struct(">h")
_KEY_PREFIX = _VERSION.pack(KEY_VERSION)
_VALUE_PREFIX = _VERSION.pack(VALUE_VERSION)


class Slot(NamedTuple):
    """A record: one of the last rebalances of a group, None if it was removed."""

    group_id: str
    slot: int
    value: RebalanceValue | None


def encode(group_id: str, value: RebalanceValue) -> tuple[bytes, bytes]:
    """Key and value as they are written. Raises ValueError for names too long for the format."""
    return _key(group_id, value.epoch % KEPT), _VALUE_PREFIX + value.encode(VALUE_VERSION)


def tombstone_keys(group_id: str, epoch: int) -> Iterator[bytes]:
    """The keys of all records of a group whose last generation or epoch is this one."""
    for slot in range(min(epoch + 1, KEPT)):
        yield _key(group_id, slot)


def _key(group_id: str, slot: int) -> bytes:
    return _KEY_PREFIX + RebalanceKey(group=group_id, slot=slot).encode(KEY_VERSION)


def decode(key: bytes | None, value: bytes | None) -> Slot | None:
    """The record, or None for one of a kind that does not exist yet. Raises MalformedMessage."""
    if key is None or len(key) < _VERSION.size:
        raise MalformedMessage("a record without the version of its key")
    if _VERSION.unpack_from(key)[0] != KEY_VERSION:
        return None
    found, _ = RebalanceKey.decode(key, KEY_VERSION, _VERSION.size)
    if value is None:
        return Slot(found.group, found.slot, None)
    if len(value) < _VERSION.size:
        raise MalformedMessage("a value without version")
    # A newer version only adds tagged fields.
    version = min(_VERSION.unpack_from(value)[0], VALUE_VERSION)
    if version < 0:
        raise MalformedMessage(f"a value of version {version}")
    return Slot(found.group, found.slot, RebalanceValue.decode(value, version, _VERSION.size)[0])
