"""Targets that decode batches to change them: conversions for old clients, and compaction."""

from __future__ import annotations

import struct
from functools import cache
from random import Random
from typing import Any

from gregor.protocol.errors import KafkaError
from gregor.protocol.records.batch import RECORD_BATCH_OVERHEAD, CorruptBatch, RecordBatch, iter_batches
from gregor.protocol.records.down_conversion import UnsupportedCodec, down_converting
from gregor.protocol.records.message_sets import iter_messages
from gregor.protocol.records.scan import record_heads
from gregor.protocol.records.spans import record_spans
from gregor.protocol.turns import run_all
from gregor.storage.cleaner.batch_filter import filter_batch, with_delete_horizon
from gregor.storage.cleaner.offset_map import OffsetMap
from gregor.storage.log.prepare import prepare
from gregor.storage.segment.transaction_index import (
    AbortedTransaction,
    TransactionTrail,
    format_transaction,
    parse_transaction_index,
)
from tests.fuzz.record_targets import CODECS, MAX_PLAIN_BYTES, append_seeds, batch_seeds, mend_batch, some_batch
from tests.fuzz.runner import Seed, Target
from tests.storage.logs import NOW_MS, log_config

MAX_SET_BYTES = 4096


def targets() -> list[Target]:
    return [
        Target(
            "conversions down",
            convert_down,
            down_seeds,
            (CorruptBatch, UnsupportedCodec),
            weight=12,
            mend=mend_batch,
        ),
        Target("scans of records", scan, scan_seeds, (CorruptBatch,), weight=16),
        Target("compaction", compact, compaction_seeds, (CorruptBatch,), weight=12, mend=mend_batch),
        Target("preparations", prepare_batch, preparation_seeds, (KafkaError,), weight=12, mend=mend_batch),
        Target("transaction indexes", read_aborted, aborted_seeds, (ValueError,), weight=8),
    ]


def down_seeds() -> list[Seed]:
    random = Random(4721)
    codecs = [codec for codec in CODECS if codec != 4]
    datas = []
    for _ in range(12):
        datas.append(some_batch(random, random.choice(codecs)) + some_batch(random, random.choice(CODECS), 50))
    return [((magic, first), data) for magic in (0, 1) for first in (0, 3) for data in datas]


def convert_down(context: tuple[int, int], data: bytes) -> None:
    """The result is a message set that can be read again."""
    magic, first_offset = context
    converted = run_all(down_converting(data, magic, first_offset, MAX_SET_BYTES))
    found = list(iter_messages(converted.message_set, MAX_PLAIN_BYTES * 64))
    assert all(message.magic == magic for message in found)
    assert converted.message_set == b"" or found


def scan_seeds() -> list[Seed]:
    random = Random(4722)
    batches = [some_batch(random, 0) for _ in range(20)]
    return [(RecordBatch(data).record_count, data[RECORD_BATCH_OVERHEAD:]) for data in batches]


def scan(count: int, data: bytes) -> None:
    """Check that all three readers find the same in every input that the strictest of them accepts."""
    head = bytearray(RECORD_BATCH_OVERHEAD)
    struct.pack_into(">i", head, 8, RECORD_BATCH_OVERHEAD - 12 + len(data))
    head[16] = 2
    struct.pack_into(">i", head, 57, count)
    errors = []
    try:
        heads = list(record_heads(data, count))
    except CorruptBatch as error:
        errors.append(error)
    try:
        spans = record_spans(data, count)
    except CorruptBatch as error:
        errors.append(error)
    records = list(RecordBatch(bytes(head) + data).records())
    assert not errors, f"records can be read, yet {errors}"
    assert [record.key is not None for record in records] == [head[2] for head in heads]
    assert [record.key for record in records] == [span[5] for span in spans]
    assert [record.value is not None for record in records] == [span[6] for span in spans]
    assert [record.offset for record in records] == [head[1] for head in heads] == [span[4] for span in spans]


def compaction_seeds() -> list[Seed]:
    return [((retain, deep), data) for _, data in batch_seeds() for retain, deep in ((False, 0), (True, 100))]


def compact(context: tuple[bool, int], data: bytes) -> None:
    """Check that the rest of a batch is a batch, with a right checksum and no more records than before."""
    retain_empty, known_up_to = context
    latest = OffsetMap(1 << 16, 0.9, 100)
    for number, key in enumerate((b"", b"k", bytes(200))):
        latest.put(key, number * 2)
    latest.latest_offset = known_up_to
    for batch in iter_batches(data):
        if batch.is_control:
            results = [with_delete_horizon(batch, NOW_MS)] if batch.record_count else []
        else:
            results = [filter_batch(batch, latest, now_ms=NOW_MS, delete_retention_ms=1000, retain_empty=retain_empty)]
        for result in results:
            assert 0 <= result.records_kept <= result.records_read
            if result.data is not None:
                left = RecordBatch(bytes(result.data))
                assert left.crc_ok() and left.record_count == result.records_kept
                assert left.next_offset == batch.next_offset


CONFIGS: dict[str, dict[str, Any]] = {
    "deep": {"gregor_deep_validation": True},
    "zstd": {"compression_type": "zstd"},
    "plain": {"compression_type": "uncompressed", "cleanup_policy": frozenset({"compact"})},
}


def preparation_seeds() -> list[Seed]:
    return [(kind, data) for kind in CONFIGS for _, data in append_seeds()]


def prepare_batch(kind: str, data: bytes) -> None:
    """Check that a batch that passes deep validation has records that can be read."""
    prepared = run_all(prepare(bytearray(data), log_config(**CONFIGS[kind]), NOW_MS))
    batch = RecordBatch(prepared)
    assert batch.crc_ok() and batch.size_bytes == len(prepared)
    if kind == "deep":
        assert len(list(batch.records())) == batch.record_count


@cache
def transactional_batches() -> list[Seed]:
    return batch_seeds()[-10:]


def aborted_seeds() -> list[Seed]:
    entries = [AbortedTransaction(5, 1, 3, 4), AbortedTransaction(6, 2, 60, 61)]
    return [(None, b"".join(map(format_transaction, entries[:count]))) for count in range(3)]


def read_aborted(context: None, data: bytes) -> None:
    trail = TransactionTrail(parse_transaction_index(data), 0)
    for _, seed in transactional_batches():
        for batch in iter_batches(seed):
            if batch.is_control:
                trail.ends_nothing(batch)
            else:
                trail.is_aborted(batch)
