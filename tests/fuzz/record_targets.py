"""Targets of records: batches, codecs, message sets of old clients, appends, and dumps of .log files."""

from __future__ import annotations

import struct
from random import Random
from typing import Any, ClassVar
from zlib import crc32

from crc32c import crc32c

from gregor.broker.cli.dump_log.records import Shown, dump_log, plain_contents
from gregor.broker.cli.errors import CommandError
from gregor.protocol.errors import KafkaError
from gregor.protocol.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    RECORD_BATCH_OVERHEAD,
    CorruptBatch,
    Record,
    RecordBatch,
    build_batch,
    iter_batches,
)
from gregor.protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, DecompressionError, compress, decompress
from gregor.protocol.records.message_sets import iter_messages
from gregor.protocol.records.up_conversion import upconvert
from tests.fuzz.runner import Seed, Target
from tests.storage.logs import NOW_MS, open_log
from tests.storage.memory_files import MemoryFiles

MAX_PLAIN_BYTES = 1 << 20
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
APPENDS_PER_LOG = 500


def targets() -> list[Target]:
    return [
        Target("record batches", read_batches, batch_seeds, (CorruptBatch,), weight=28, mend=mend_batch),
        Target("records inside a codec", read_packed, packed_seeds, (CorruptBatch,), weight=16),
        Target("codecs", unpack, codec_seeds, (DecompressionError,), weight=20),
        Target("message sets", read_messages, message_set_seeds, (CorruptBatch,), weight=24, mend=mend_messages),
        Target("appends", Appender().append, append_seeds, (KafkaError,), weight=16, mend=mend_batch),
        Target("dumps of logs", dump, dump_seeds, (CommandError, CorruptBatch), weight=6),
    ]


# -- batches -----------------------------------------------------------------------------------------------------------


def some_records(random: Random, offset: int = 0, timestamp: int = NOW_MS) -> list[Record]:
    """A few records of all shapes."""
    contents = (None, b"", b"k", b"value " * 10, bytes(200), random.randbytes(70))
    headers: tuple[list[tuple[str, bytes | None]], ...] = ([], [], [("h", b"v")], [("ü", None), ("", b""), ("h", b"x")])
    records = []
    for _ in range(random.randint(1, 5)):
        records.append(
            Record(
                offset,
                timestamp + random.randint(-5, 1000),
                random.choice(contents),
                random.choice(contents),
                random.choice(headers),
            )
        )
        offset += random.choice([1, 1, 1, 7])
    return records


def some_batch(random: Random, codec: int, offset: int = 0) -> bytes:
    control = random.random() < 0.1
    return bytes(
        build_batch(
            [(b"\0\0\0\1", b"\0\0\0\0\0\5")] if control else some_records(random, offset),
            base_offset=offset,
            compression=codec,
            producer_id=random.choice([-1, 5]),
            producer_epoch=0,
            base_sequence=random.choice([-1, 0, 2**31 - 2]),
            transactional=control,
            control=control,
            timestamp_ms=NOW_MS,
            timestamp_type=random.choice([0, 0, 1]),
        )
    )


def batch_seeds() -> list[Seed]:
    random = Random(4713)
    singles = [some_batch(random, codec) for codec in CODECS for _ in range(8)]
    pairs = [first + some_batch(random, random.choice(CODECS), 50) for first in random.sample(singles, 15)]
    return [(None, data) for data in singles + pairs]


def mend_batch(context: Any, data: bytearray) -> None:
    """The length and the checksum of the first batch."""
    if len(data) >= RECORD_BATCH_OVERHEAD:
        struct.pack_into(">i", data, LENGTH_AT, len(data) - LOG_OVERHEAD)
        struct.pack_into(">I", data, CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))


def read_batches(context: None, data: bytes) -> None:
    for batch in iter_batches(data):
        assert batch.next_offset == batch.last_offset + 1
        assert len(repr(batch)) < 1000 and batch.last_sequence >= -1
        batch.crc_ok()
        plain_bytes = 0
        for record in batch.records(MAX_PLAIN_BYTES):
            plain_bytes += len(record.key or b"") + len(record.value or b"")
            assert -(2**63) <= record.timestamp < 2**63 and 0 <= record.offset < 2**63
        assert plain_bytes <= MAX_PLAIN_BYTES + len(data)


def packed_seeds() -> list[Seed]:
    random = Random(4714)
    return [(codec, some_batch(random, NONE)) for codec in CODECS[1:] for _ in range(6)]


def read_packed(codec: int, data: bytes) -> None:
    """The records are broken before they are compressed."""
    body = compress(codec, data[RECORD_BATCH_OVERHEAD:])
    batch = bytearray(data[:RECORD_BATCH_OVERHEAD].ljust(RECORD_BATCH_OVERHEAD, b"\0")) + body
    batch[ATTRIBUTES_AT + 1] = batch[ATTRIBUTES_AT + 1] & ~7 | codec
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - LOG_OVERHEAD)
    batch[16] = 2
    read_batches(None, bytes(batch))


# -- codecs ------------------------------------------------------------------------------------------------------------

ANY_LZ4 = 100
"""LZ4 as in message sets of magic 0."""


def codec_seeds() -> list[Seed]:
    random = Random(4715)
    plains = [b"", b"a", b"the same again " * 30, random.randbytes(300), bytes(70_000), b"x" * 40_000]
    seeds: list[Seed] = []
    for codec in CODECS[1:]:
        packed = [compress(codec, plain) for plain in plains]
        packed.append(packed[1] + packed[2])
        seeds += [(codec, data) for data in packed[: -1 if codec == LZ4 else None]]
    import snappy

    seeds += [(SNAPPY, snappy.compress(plain)) for plain in plains]
    seeds += [(ANY_LZ4, data) for codec, data in seeds if codec == LZ4]
    return seeds


def unpack(codec: int, data: bytes) -> None:
    if codec == ANY_LZ4:
        plain = decompress(LZ4, data, MAX_PLAIN_BYTES, any_lz4_header_checksum=True)
    else:
        plain = decompress(codec, memoryview(data), MAX_PLAIN_BYTES)
    assert len(plain) <= MAX_PLAIN_BYTES


# -- message sets ------------------------------------------------------------------------------------------------------


def old_message(magic: int, offset: int, key: bytes | None, value: bytes | None, attributes: int = 0) -> bytes:
    stamp = struct.pack(">q", NOW_MS + offset) if magic else b""
    body = struct.pack(">bb", magic, attributes) + stamp
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def message_set_seeds() -> list[Seed]:
    random = Random(4716)
    contents = (None, b"", b"key", b"value" * 20)
    seeds = []
    for magic in (0, 1):
        for count in (1, 1, 2, 5):
            plain = b"".join(
                old_message(magic, offset, random.choice(contents), random.choice(contents)) for offset in range(count)
            )
            seeds.append((None, plain))
            for codec in (GZIP, SNAPPY, LZ4):
                stamped = random.choice([0, 8]) * magic
                wrapper = old_message(magic, count - 1, None, compress(codec, plain), codec | stamped)
                seeds.append((None, wrapper))
                seeds.append((None, wrapper + plain))
    return seeds


def mend_messages(context: Any, data: bytearray) -> None:
    """The checksums of all messages whose sizes make sense."""
    position = 0
    while position + 17 < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], signed=True)
        end = position + 12 + size
        if size < 5 or end > len(data):
            size = len(data) - position - 12
            struct.pack_into(">i", data, position + 8, size)
            end = len(data)
        struct.pack_into(">I", data, position + 12, crc32(memoryview(data)[position + 16 : end]))
        position = end


def read_messages(context: None, data: bytes) -> None:
    """A set that can be read becomes a batch with the same messages."""
    found = list(iter_messages(data, MAX_PLAIN_BYTES))
    batch = RecordBatch(upconvert(data, max_decompressed_bytes=MAX_PLAIN_BYTES))
    assert batch.crc_ok() and batch.record_count == len(found)
    records = batch.records()
    for message, record in zip(found, records, strict=True):
        assert (message.key, message.value) == (record.key, record.value)


# -- appends -----------------------------------------------------------------------------------------------------------


def append_seeds() -> list[Seed]:
    random = Random(4717)
    seeds: list[Seed] = []
    for codec in CODECS:
        for kind in ("plain", "compacted", "stamped"):
            # Batches that every log accepts: keys, no sequence that could repeat, no gaps.
            data = build_batch([(b"key", random.randbytes(20))] * 3, timestamp_ms=NOW_MS, compression=codec)
            seeds.append((kind, bytes(data)))
    return seeds


class Appender:
    """Logs that are begun anew now and then."""

    SETTINGS: ClassVar[dict[str, dict[str, Any]]] = {
        "plain": {},
        "compacted": {"cleanup_policy": frozenset({"compact"})},
        "stamped": {"message_timestamp_type": "LogAppendTime"},
    }

    def __init__(self) -> None:
        self.appends = 0
        self.logs: dict[str, Any] = {}

    def append(self, kind: str, data: bytes) -> None:
        """Check that a batch that a log accepts can be read again, up to the new end."""
        if self.appends % APPENDS_PER_LOG == 0:
            self.logs = {name: open_log(MemoryFiles(), **settings) for name, settings in self.SETTINGS.items()}
        self.appends += 1
        log = self.logs[kind]
        before = log.log_end_offset
        try:
            info = log.append_as_leader(bytearray(data), 0, NOW_MS)
        except KafkaError:
            assert log.log_end_offset == before
            raise
        if info.duplicate:
            return
        assert info.first_offset == before and log.log_end_offset == info.last_offset + 1 > before
        piece = log.read(before, 1, log.log_end_offset)
        taken = RecordBatch(piece.read())
        piece.release()
        assert taken.crc_ok() and (taken.base_offset, taken.next_offset) == (before, log.log_end_offset)


# -- dumps -------------------------------------------------------------------------------------------------------------


def dump_seeds() -> list[Seed]:
    return [(None, data) for _, data in batch_seeds() + message_set_seeds()]


def dump(context: None, data: bytes) -> None:
    files = MemoryFiles()
    files.make_directory("/t-0")
    files.write_atomically("/t-0/00000000000000000000.log", data)
    written: list[str] = []
    dump_log(
        files.open("/t-0/00000000000000000000.log"),
        Shown(records=True, contents=True),
        plain_contents,
        written.append,
    )
