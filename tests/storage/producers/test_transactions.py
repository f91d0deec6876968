"""Transactions of one log against two plain lists."""

from __future__ import annotations

import random

import pytest

from gregor.storage.producers.transactions import Transactions


@pytest.mark.parametrize("seed", range(30))
def test_the_first_unstable_offset_is_the_lowest_of_all_undecided_ones(seed: int) -> None:
    rng = random.Random(seed)
    transactions = Transactions()
    begun: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    for offset in range(300):
        producer_id = rng.randrange(6)
        if producer_id not in begun:
            transactions.begin(producer_id, offset)
            begun[producer_id] = offset
        elif rng.random() < 0.5:
            others = [first for other, first in begun.items() if other != producer_id]
            assert transactions.stable_offset_after(producer_id, offset) == min(others, default=offset + 1)
            transactions.end(producer_id, offset, high_watermark)
            ended.append((offset, begun.pop(producer_id)))
        if rng.random() < 0.3:
            high_watermark = rng.randint(high_watermark, offset + 1)
        undecided = [*begun.values(), *(first for marker, first in ended if marker >= high_watermark)]
        if rng.random() < 0.5:
            assert transactions.first_unstable(high_watermark) == min(undecided, default=None)
        assert len(transactions) == len(begun)


def test_ended_transactions_are_forgotten_where_no_consumer_reads_committed_records() -> None:
    transactions = Transactions()
    for offset in range(0, 1000, 2):
        transactions.begin(7, offset)
        transactions.end(7, offset + 1, offset)
    assert transactions.ended_count == 1
