"""The starts of records: batches that are walked in step, beside those that are walked one after the other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gregor.protocol.records.batch import RECORD_BATCH_OVERHEAD, iter_batches
from gregor.spark_jobs.arrow import varints
from gregor.spark_jobs.arrow.columns import Malformed, parse
from tests.spark_jobs.arrow.twin import batch_of

ONE_AFTER_THE_OTHER = 1_000_000


def outcome(data: bytes, bounds: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch, in_step: int) -> object:
    """Return the offset deltas and where the values lie, or the batch that is malformed."""
    monkeypatch.setattr(varints, "MIN_BATCHES_IN_STEP", in_step)
    firsts, ends, counts = (np.array(column, dtype=np.int64) for column in zip(*bounds, strict=True))
    try:
        found = parse(np.frombuffer(data, dtype=np.uint8), firsts, ends, counts, False)
    except Malformed as error:
        return error.batch
    return found.offset_deltas.tolist(), found.values.positions.tolist(), found.values.lengths.tolist()


def batches(counts: list[int], sizes: list[int]) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Return batches of so many records, and the bounds and counts of each."""
    data = b"".join(batch_of(0, count, value_bytes=size) for count, size in zip(counts, sizes, strict=True))
    found = iter_batches(data)
    return data, [
        (one.position + RECORD_BATCH_OVERHEAD, one.position + one.size_bytes, one.record_count) for one in found
    ]


@pytest.mark.parametrize("largest", [20, 200, 9000])
def test_starts_do_not_depend_on_how_batches_are_walked(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = random.Random(largest)
    counts = [numbers.choice([1, 2, 3, 20, 90]) for _ in range(30)]
    data, bounds = batches(counts, [numbers.randint(0, largest) for _ in counts])
    expected = outcome(data, bounds, monkeypatch, ONE_AFTER_THE_OTHER)
    assert isinstance(expected, tuple) and len(expected[0]) == sum(counts)
    for in_step in (1, 4, 30):
        assert outcome(data, bounds, monkeypatch, in_step) == expected


def test_malformed_batch_is_found_however_batches_are_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = random.Random(1)
    data, bounds = batches([numbers.randint(1, 12) for _ in range(20)], [30] * 20)
    found = set()
    for _ in range(300):
        changed = bytearray(data)
        first, end, _ = bounds[numbers.randrange(len(bounds))]
        changed[numbers.randrange(first, end)] = numbers.randrange(256)
        expected = outcome(bytes(changed), bounds, monkeypatch, ONE_AFTER_THE_OTHER)
        assert outcome(bytes(changed), bounds, monkeypatch, 1) == expected
        found.add(type(expected))
    assert found == {int, tuple}
