"""Topics filled with the records that `make bench-spark` reads."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from typing import NamedTuple

from gregor.protocol.messages import ProduceRequest
from gregor.protocol.records.batch import ATTRIBUTES_AT, CRC_AT, Record, build_batch
from gregor.protocol.records.checksum import crc32c
from gregor.protocol.records.compression import CODEC_NAMES
from tests.bench.figures import create_topics
from tests.support.wire import RawConnection

BATCH_BYTES = 16_384
"""Of a batch as it is sent: the default of batch.size."""
POOL = 32
"""Different batches of a topic, in turns."""
KEYS = 1000
PARTITIONS = 4
START_MS = 1_700_000_000_000
BASE_TIMESTAMP_AT = 27
TIMESTAMPS = struct.Struct(">qq")
"""Base and max timestamp of a batch."""


class Kind(NamedTuple):
    """The records of a topic: mean size of a value, which varies by a fifth, and codec."""

    value_bytes: int
    codec: int

    @property
    def name(self) -> str:
        size = f"{self.value_bytes // 1000} KB" if self.value_bytes >= 1000 else f"{self.value_bytes} B"
        return f"{size}{'' if not self.codec else f' {CODEC_NAMES[self.codec]}'}"


def _value(numbers: random.Random, size: int) -> bytes:
    """Return a text of which a codec leaves about half."""
    text = b'{"user":"%08x","page":"/items/%06d","spent_ms":%d,"session":"' % (
        numbers.getrandbits(32),
        numbers.randrange(10**6),
        numbers.randrange(10**5),
    )
    wanted = size * numbers.randint(80, 120) // 100
    while len(text) < wanted:
        text += b"%08x-widget-" % numbers.getrandbits(32)
    return text[: max(1, wanted - 2)] + b'"}'


def _pool(kind: Kind, span_ms: int) -> list[tuple[bytearray, int]]:
    """Return batches and the numbers of their records, whose timestamps are `span_ms` apart."""
    numbers = random.Random(kind.value_bytes)
    count = max(1, BATCH_BYTES * (2 if kind.codec else 1) // (kind.value_bytes + 20))
    keys = itertools.cycle(range(KEYS))
    pool = []
    for _ in range(POOL):
        records = [
            Record(slot, START_MS + slot * span_ms, b"key-%d" % next(keys), _value(numbers, kind.value_bytes), [])
            for slot in range(count)
        ]
        pool.append((build_batch(records, compression=kind.codec), count))
    return pool


def batches(kind: Kind, records: int, span_ms: int = 1) -> Iterator[tuple[bytes, int]]:
    """Yield batches with about so many records together, and their counts. Timestamps rise from batch to batch."""
    pool = _pool(kind, span_ms)
    sent = 0
    for batch, count in itertools.cycle(pool):
        if sent >= records:
            return
        base = START_MS + sent * span_ms
        TIMESTAMPS.pack_into(batch, BASE_TIMESTAMP_AT, base, base + (count - 1) * span_ms)
        with memoryview(batch) as view:
            checksum = crc32c(view[ATTRIBUTES_AT:])
        struct.pack_into(">I", batch, CRC_AT, checksum)
        yield bytes(batch), count
        sent += count


def fill(port: int, topic: str, kind: Kind, records: int, partitions: int = PARTITIONS, span_ms: int = 1) -> int:
    """Make a topic with about so many records; return their number."""
    written = 0
    with RawConnection(port) as connection:
        # The records' timestamps are old: the topic keeps them.
        create_topics(connection, [topic], partitions, {"retention.ms": "-1"})
        source = batches(kind, records, span_ms)
        while some := list(itertools.islice(source, partitions)):
            written += sum(count for _, count in some)
            data = [
                ProduceRequest.PartitionProduceData(index=index, records=batch) for index, (batch, _) in enumerate(some)
            ]
            topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
            answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
            assert {one.error_code for one in answer.responses[0].partition_responses} == {0}
    return written
