"""Batches and logs for the tests of this folder, with a clock that the test turns."""

from __future__ import annotations

import binascii
import struct
from typing import Any

from crc32c import crc32c

from gregor.config.topic import LogConfig
from gregor.protocol.records.batch import RecordBatch, build_batch
from gregor.protocol.records.control import EndTransaction
from gregor.storage.fs.files import Files
from gregor.storage.log.contents import LogIdentity
from gregor.storage.log.log import AppendInfo, Log
from gregor.storage.producers.transaction_checks import check_marker
from gregor.storage.segment.batches import BatchHeader
from gregor.storage.segment.segment import Segment

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/orders-0"


def log_config(**settings: object) -> LogConfig:
    """Return the defaults with some settings replaced, without a check of their ranges: segments may be tiny."""
    config = LogConfig.defaults()
    for name, value in settings.items():
        assert hasattr(config, name)
        setattr(config, name, value)
    return config


def batch(count: int = 1, *, timestamp_ms: int = NOW_MS, size: int = 20, **fields: Any) -> bytearray:
    """A batch as a client sends it: `count` records with a key and a value of `size` bytes."""
    return build_batch([(b"key", b"v" * size)] * count, timestamp_ms=timestamp_ms, **fields)


def sequenced(producer_id: int, epoch: int, first_sequence: int, count: int = 1, **fields: Any) -> bytearray:
    """A batch of an idempotent producer."""
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=first_sequence, **fields)


def patched(data: bytes | bytearray, layout: str, position: int, *values: int) -> bytearray:
    """The batch with a header field changed, and a checksum that is right again."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, *values)
    if position != 17:
        struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[21:]))
    return changed


def old_message(offset: int = 0, *, magic: int = 1, timestamp_ms: int = NOW_MS, size: int = 60) -> bytes:
    """A message as Apache Kafka stored it before 0.11, in a message set of its own."""
    timestamp = struct.pack(">q", timestamp_ms) if magic else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, size) + b"v" * size
    return struct.pack(">qiI", offset, len(body) + 4, binascii.crc32(body)) + body


def open_log(files: Files, directory: str = DIRECTORY, *, now_ms: int = NOW_MS, **settings: object) -> Log:
    """A log in a folder that is made if need be. Names of `Log.open` go there, the rest are settings."""
    files.make_directory(directory)
    arguments = {
        name: settings.pop(name) for name in ("log_start_offset", "recovery_point", "on_error") if name in settings
    }
    config = log_config(**settings)
    return Log.open(directory, LogIdentity("orders", 0), config, files, now_ms=now_ms, **arguments)  # type: ignore[arg-type]


def append_marker(log: Log, marker: EndTransaction, leader_epoch: int = 0, *, now_ms: int = NOW_MS) -> AppendInfo:
    """Append the marker as a partition does."""
    check_marker(log.producers.entries.get(marker.producer_id), marker)
    return log.append_as_leader(marker.batch(now_ms), leader_epoch, now_ms, from_client=False)


def is_open(log: Log, producer_id: int, epoch: int = 0) -> bool:
    """Return whether the producer has a transaction open."""
    entry = log.producers.entries.get(producer_id)
    return entry is not None and entry.has_open_transaction(epoch)


def header_fields(batch: BatchHeader) -> tuple[int, ...]:
    """position, size in bytes, base offset, last offset, leader epoch, attributes, max timestamp, producer id, producer
    epoch, base sequence."""
    return (
        batch.position, batch.size_bytes, batch.base_offset, batch.last_offset, batch.leader_epoch, batch.attributes,
        batch.max_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence,
    )  # fmt: skip


def scanned(segment: Segment, position: int = 0, *, verify_crc: bool = True) -> list[tuple[int, ...]]:
    """The header fields of what a scan yields."""
    return [header_fields(one) for one in segment.scan(position, verify_crc=verify_crc)]


def offsets(data: bytes) -> list[int]:
    """Offsets of all records of the whole batches in `data`."""
    found: list[int] = []
    position = 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12])
        if end > len(data):
            break
        found += [record.offset for record in RecordBatch(data, position).records()]
        position = end
    return found


def read_offsets(log: Log, offset: int, max_bytes: int = 1 << 20, upper_offset: int | None = None) -> list[int]:
    """Return the offsets that a consumer gets from `offset` to the end of the log."""
    upper_offset = log.log_end_offset if upper_offset is None else upper_offset
    found: list[int] = []
    while offset < upper_offset:
        piece = log.read(offset, max_bytes, upper_offset)
        got = [number for number in offsets(piece.read()) if number >= offset]
        piece.release()
        if not got:
            break
        found += got
        offset = got[-1] + 1
    return found
