"""Runs of whole batches in a view, against the obvious way to find them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gregor.storage.segment.batches import runs_of_batches
from tests.storage.logs import batch


@given(st.lists(st.integers(1, 3), max_size=12), st.integers(1, 4), st.integers(0, 70))
def test_runs(counts: list[int], most: int, cut: int) -> None:
    batches = [bytes(batch(count)) for count in counts]
    data = b"".join(batches)[: max(0, sum(map(len, batches)) - cut)]
    runs = [bytes(run) for run in runs_of_batches(memoryview(data), most)]
    assert b"".join(runs) == data
    for index, run in enumerate(runs[:-1]):
        assert run == b"".join(batches[index * most : (index + 1) * most])
    assert len(runs[-1]) <= max(most * 61, most * max(map(len, batches), default=0))


@given(st.binary(max_size=300), st.integers(1, 3))
def test_what_is_no_batch_is_left_to_who_writes_it(data: bytes, most: int) -> None:
    runs = list(runs_of_batches(memoryview(data), most))
    assert b"".join(runs) == data
    assert all(runs) or runs == [b""]
