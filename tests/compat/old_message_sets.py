"""Message sets, good and bad, for two brokers to judge."""

from __future__ import annotations

import struct
import time
from zlib import crc32

from gregor.protocol.records.batch import build_batch
from gregor.protocol.records.compression import GZIP, LZ4, SNAPPY, compress, with_wrong_lz4_header_checksum
from gregor.protocol.records.message_sets import append_message

NOW_MS = int(time.time() * 1000) - 60_000
STEP_MS = 6 * 3_600_000
Field = bytes | None

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "compact": {"cleanup.policy": "compact"},
    "bounds": {"message.timestamp.before.max.ms": str(2 * STEP_MS), "message.timestamp.after.max.ms": str(2 * STEP_MS)},
    "small": {"max.message.bytes": "500"},
    "to-gzip": {"compression.type": "gzip"},
    "to-small-gzip": {"compression.type": "gzip", "max.message.bytes": "500"},
    "to-zstd": {"compression.type": "zstd"},
    "to-plain": {"compression.type": "uncompressed"},
}
"""By kind: the settings of a topic."""


def messages(
    magic: int, *values: Field, key: Field = b"k", attributes: int = 0, offsets: str = "0123456789", late: str = ""
) -> bytes:
    """A set without a codec; `late`: a digit for each message, steps of six hours before now."""
    out = bytearray()
    for at, value in enumerate(values):
        stamp = NOW_MS - int(late[at]) * STEP_MS if late else NOW_MS
        append_message(out, int(offsets[at]), magic, attributes, stamp, key, value)
    return bytes(out)


def one(magic: int, value: Field, *, offset: int = 0, attributes: int = 0, stamp: int = NOW_MS) -> bytes:
    out = bytearray()
    append_message(out, offset, magic, attributes, stamp, None, value)
    return bytes(out)


def wrapper(codec: int, inner: bytes, magic: int, *, offset: int = 2, attributes: int = 0, late: int = 0) -> bytes:
    packed = compress(codec, inner)
    if codec == LZ4 and magic == 0:
        packed = with_wrong_lz4_header_checksum(packed)
    return one(magic, packed, offset=offset, attributes=codec | attributes, stamp=NOW_MS - late * STEP_MS)


def damaged(data: bytes) -> bytes:
    """A wrong checksum."""
    return data[:12] + bytes((data[12] ^ 0xFF,)) + data[13:]


def changed(data: bytes, at: int, value: int) -> bytes:
    """Another byte in the first message, and its checksum made right."""
    fresh = bytearray(data)
    fresh[at] = value
    end = 12 + int(struct.unpack_from(">i", fresh, 8)[0])
    struct.pack_into(">I", fresh, 12, crc32(bytes(fresh[16:end])))
    return bytes(fresh)


def plain_cases(magic: int) -> dict[str, tuple[str, bytes]]:
    """By name: the kind of topic, and the set."""
    three = messages(magic, b"a", b"b", b"c")
    single = messages(magic, b"a")
    keyless = messages(magic, b"a", b"b", key=None)
    return {
        "one": ("plain", single),
        "three": ("plain", three),
        "nulls": ("plain", messages(magic, None, b"", None, key=None)),
        "an empty key": ("plain", messages(magic, None, b"x", key=b"")),
        "nothing": ("plain", b""),
        "cut off": ("plain", three[:-3]),
        "cut off in the first": ("plain", single[:-3]),
        "a tail": ("plain", three + bytes(5)),
        "checksum": ("plain", damaged(three)),
        "checksum of the last": ("plain", messages(magic, b"a", b"b") + damaged(single)),
        "all offsets 0": ("plain", messages(magic, b"a", b"b", b"c", offsets="000")),
        "offsets fall": ("plain", messages(magic, b"a", b"b", b"c", offsets="531")),
        "offsets with gaps": ("plain", messages(magic, b"a", b"b", b"c", offsets="379")),
        "both formats": ("plain", single + messages(1 - magic, b"b", offsets="1")),
        "a batch": ("plain", bytes(build_batch([(b"k", b"v")], timestamp_ms=NOW_MS))),
        **{f"magic {other}": ("plain", changed(single, 16, other)) for other in (3, 127, 255)},
        "unused bits": ("plain", messages(magic, b"a", attributes=-16)),
        "append time bit": ("plain", messages(magic, b"a", attributes=8)),
        "append time bit in append time": ("append-time", messages(magic, b"a", attributes=8)),
        **{f"codec {codec}": ("plain", changed(single, 17, codec)) for codec in (4, 5, 7)},
        **{f"no codec {codec}": ("plain", one(magic, b"junk" * 4, attributes=codec)) for codec in (GZIP, SNAPPY, LZ4)},
        "null compressed": ("plain", one(magic, None, attributes=GZIP)),
        "empty compressed": ("plain", one(magic, b"", attributes=GZIP)),
        "no time": ("plain", one(magic, b"a", stamp=-1) + single),
        "times fall": ("plain", messages(magic, b"a", b"b", b"c", late="012")),
        "a time below none": ("plain", one(magic, b"a", stamp=-5)),
        "too late": ("bounds", messages(magic, b"a", b"b", late="03")),
        "too late, compressed": ("bounds", wrapper(GZIP, messages(magic, b"a", b"b", late="03"), magic)),
        "no time with bounds": ("bounds", one(magic, b"a", stamp=-1)),
        "append time": ("append-time", three),
        "append time, compressed": ("append-time", wrapper(GZIP, three, magic)),
        "compacted": ("compact", three),
        "compacted, no key": ("compact", keyless),
        "compacted, no key, compressed": ("compact", wrapper(GZIP, keyless, magic)),
        "small enough": ("small", messages(magic, b"x" * 300)),
        "too large": ("small", messages(magic, b"x" * 600)),
        "too large together": ("small", messages(magic, b"x" * 300, b"y" * 300)),
        "small packed": ("small", wrapper(GZIP, messages(magic, b"x" * 600, b"y" * 600), magic)),
        "to be packed small": ("to-small-gzip", messages(magic, b"x" * 300, b"y" * 300)),
        "to gzip": ("to-gzip", three),
        "to gzip from snappy": ("to-gzip", wrapper(SNAPPY, three, magic)),
        "to zstd": ("to-zstd", three),
        "to plain from lz4": ("to-plain", wrapper(LZ4, three, magic)),
    }


def packed_cases(magic: int, codec: int) -> dict[str, tuple[str, bytes]]:
    three = messages(magic, b"a", b"b", b"c")
    single = messages(magic, b"a")
    last = messages(magic, b"b", offsets="1")
    return {
        "three": ("plain", wrapper(codec, three, magic)),
        "offset 0": ("plain", wrapper(codec, three, magic, offset=0)),
        "another offset": ("plain", wrapper(codec, three, magic, offset=77)),
        "all offsets 0": ("plain", wrapper(codec, messages(magic, b"a", b"b", offsets="00"), magic)),
        "offsets with gaps": ("plain", wrapper(codec, messages(magic, b"a", b"b", offsets="58"), magic, offset=8)),
        "nothing": ("plain", wrapper(codec, b"", magic)),
        "two": ("plain", wrapper(codec, single, magic, offset=0) + wrapper(codec, last, magic, offset=1)),
        "and plain": ("plain", wrapper(codec, single, magic, offset=0) + last),
        "plain and": ("plain", single + wrapper(codec, last, magic, offset=1)),
        "nested": ("plain", wrapper(codec, wrapper(codec, three, magic), magic)),
        "another format": ("plain", wrapper(codec, messages(1 - magic, b"a", b"b"), magic)),
        "checksum": ("plain", damaged(wrapper(codec, three, magic))),
        "checksum within": ("plain", wrapper(codec, damaged(three), magic)),
        "cut off within": ("plain", wrapper(codec, three[:-3], magic)),
        "a tail within": ("plain", wrapper(codec, three + bytes(3), magic)),
        "append time bit": ("plain", wrapper(codec, three, magic, attributes=8)),
        "append time bit within": ("plain", wrapper(codec, messages(magic, b"a", attributes=8), magic)),
        "later than what is in it": ("plain", wrapper(codec, messages(magic, b"a", b"b", late="12"), magic)),
        "nulls": ("plain", wrapper(codec, messages(magic, None, b"", key=None), magic)),
    }
