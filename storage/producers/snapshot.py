"""The snapshots of a log's producers (Kafka's ProducerStateManager), big-endian:

<offset in 20 digits>.snapshot      the state from all batches below the offset
int16    version, 1
uint32   CRC-32C of everything after this field
int32    number of entries; an entry:
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta of the last batch,
    int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

from gregor.protocol.records.checksum import crc32c
from gregor.storage.producers.entry import ProducerEntry

_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CRC_COVERS_FROM = 6


def format_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    parts = [
        _SNAPSHOT_ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            *((entry.batches[-1][:3]) if entry.batches else (-1, -1, 0)),
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for entry in entries
    ]
    data = bytearray(_SNAPSHOT_HEAD.pack(1, 0, len(parts)))
    data += b"".join(parts)
    data[2:_CRC_COVERS_FROM] = crc32c(memoryview(data)[_CRC_COVERS_FROM:]).to_bytes(4)
    return bytes(data)


def parse_snapshot(data: bytes) -> list[ProducerEntry]:
    """Parse the entries of a snapshot; each has its last batch only. ValueError when it is damaged."""
    try:
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != 1 or count < 0:
            raise ValueError(f"snapshot of version {version} with {count} entries")
        rows = [
            _SNAPSHOT_ENTRY.unpack_from(data, _SNAPSHOT_HEAD.size + slot * _SNAPSHOT_ENTRY.size)
            for slot in range(count)
        ]
    except error as broken:
        raise ValueError("snapshot is incomplete") from broken
    if crc32c(memoryview(data)[_CRC_COVERS_FROM:]) != crc:
        raise ValueError("snapshot has a wrong checksum")
    entries = []
    for producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset in rows:
        entry = ProducerEntry(producer_id)
        if last_offset >= 0:
            entry.add(epoch, (last_sequence, last_offset, delta, timestamp))
        entry.epoch = epoch
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_first_offset = first_offset
        entries.append(entry)
    return entries
