"""gregor.broker.net.receive_buffers: memory for unfinished requests, and who gets it."""

from __future__ import annotations

import random

from gregor.broker.net.receive_buffers import (
    DEFAULT_BUDGET_BYTES,
    ORDINARY_FRAME_BYTES,
    Admission,
    BufferPool,
    OwnedBuffer,
    ReceiveBudget,
)

MB = 1024 * 1024


def test_growing_keeps_what_came() -> None:
    buffer = OwnedBuffer(256 * 1024)
    buffer.view[:3] = b"abc"
    buffer.view[256 * 1024 - 1] = 7
    buffer.grow(3 * MB)
    assert bytes(buffer.view[:3]) == b"abc"
    assert buffer.view[256 * 1024 - 1] == 7
    assert len(buffer.view) == buffer.capacity == 3 * MB
    buffer.view[3 * MB - 1] = 9


def test_growing_under_a_view_that_is_still_referenced_copies_instead() -> None:
    buffer = OwnedBuffer(256 * 1024)
    buffer.view[:3] = b"abc"
    kept = buffer.view[:3]
    buffer.grow(MB)
    assert bytes(buffer.view[:3]) == b"abc"
    assert bytes(kept) == b"abc"
    assert len(buffer.view) == MB


def test_compacting_moves_overlapping_bytes() -> None:
    buffer = OwnedBuffer(256 * 1024)
    data = random.Random(1).randbytes(1000)
    buffer.view[10:1010] = data
    buffer.compact(10, 1010)
    assert bytes(buffer.view[:1000]) == data


def test_capacity_grows_fourfold_and_never_past_the_frame() -> None:
    buffer = OwnedBuffer(256 * 1024)
    assert BufferPool.next_capacity(buffer, 100 * MB) == MB
    assert BufferPool.next_capacity(buffer, 300 * 1024) == 300 * 1024


def test_the_pool_keeps_a_few_small_buffers_warm() -> None:
    pool = BufferPool()
    assert pool.acquire_warm() is None
    buffers = [pool.acquire() for _ in range(6)]
    buffers[0].grow(8 * MB)
    for buffer in buffers:
        pool.give_back(buffer)
    kept = []
    while (buffer := pool.acquire_warm()) is not None:
        kept.append(buffer)
    assert kept
    assert len(kept) == 4
    assert buffers[0] not in kept


class Asker:
    def __init__(self, budget: ReceiveBudget, size: int) -> None:
        self.told = 0
        self.admission: Admission = budget.admit(size, self.tell)

    def tell(self) -> None:
        self.told += 1


def test_large_frames_queue_for_their_half_and_ordinary_ones_are_not_kept_out() -> None:
    budget = ReceiveBudget(64 * MB)
    large = [Asker(budget, 100 * MB) for _ in range(200)]
    assert [a.admission.admitted for a in large].count(True) == 1
    ordinary = [Asker(budget, ORDINARY_FRAME_BYTES) for _ in range(16)]
    assert all(a.admission.admitted for a in ordinary)
    assert not Asker(budget, ORDINARY_FRAME_BYTES).admission.admitted
    assert large[0].admission.contended


def test_a_release_admits_the_next_in_order_and_tells_it_once() -> None:
    budget = ReceiveBudget(64 * MB)
    first, second, third = (Asker(budget, 40 * MB) for _ in range(3))
    first.admission.release()
    first.admission.release()
    assert (second.told, third.told) == (1, 0)
    assert second.admission.admitted
    second.admission.release()
    assert third.admission.admitted


def test_one_that_gives_up_while_waiting_leaves_the_queue() -> None:
    budget = ReceiveBudget(64 * MB)
    first, second, third = (Asker(budget, 40 * MB) for _ in range(3))
    second.admission.release()
    first.admission.release()
    assert (second.told, third.told) == (0, 1)
    third.admission.release()
    assert budget.waiting == 0


def test_random_traffic_never_exceeds_a_lane_but_by_a_single_frame() -> None:
    rng = random.Random(7)
    budget = ReceiveBudget(16 * MB)
    open_: list[Asker] = []
    served = 0
    for _ in range(3000):
        if open_ and rng.random() < 0.5:
            asker = open_.pop(rng.randrange(len(open_)))
            served += asker.admission.admitted
            asker.admission.release()
        else:
            open_.append(Asker(budget, rng.choice([100_000, 3 * MB, 7 * MB, 20 * MB])))
        for is_large in (False, True):
            sizes = [
                a.admission.frame_bytes
                for a in open_
                if a.admission.admitted and (a.admission.frame_bytes > ORDINARY_FRAME_BYTES) is is_large
            ]
            assert sum(sizes) <= 8 * MB or len(sizes) == 1
    for asker in open_:
        asker.admission.release()
    assert served > 100
    assert budget.waiting == 0


def test_no_limit_means_the_built_in_one() -> None:
    assert ReceiveBudget(-1).limit_bytes == DEFAULT_BUDGET_BYTES


def test_a_short_frame_uses_the_gap_that_a_longer_one_waits_for() -> None:
    budget = ReceiveBudget(64 * MB)
    long = [Asker(budget, 1_500_000) for _ in range(200)]
    admitted = sum(asker.admission.admitted for asker in long)
    assert admitted == 32 * MB // 1_500_000
    short = Asker(budget, 70_000)
    assert short.admission.admitted
    waiting = Asker(budget, 32 * MB - admitted * 1_500_000 - 1)
    assert not waiting.admission.admitted
    short.admission.release()
    assert waiting.admission.admitted
    assert waiting.told == 1
