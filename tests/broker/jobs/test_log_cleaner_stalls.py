"""Nobody waits for a compaction: what it costs the event loop while 200 MB are rewritten beside it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import uvloop

from gregor.broker.jobs.log_cleaner import CleaningResult
from gregor.protocol.records.batch import build_batch
from tests.broker.harness import Harness

TOTAL_BYTES = 200_000_000
VALUE = bytes(range(256)) * 16
KEYS = 10_000
LONGEST_TURN_S = 0.010


async def turns_during(work: asyncio.Task[CleaningResult]) -> list[float]:
    """Processor time of the loop's thread between two turns of a probe, which other processes do not distort."""
    turns = []
    last_s = time.thread_time()
    while not work.done():
        await asyncio.sleep(0.001)
        now_s = time.thread_time()
        turns.append(now_s - last_s)
        last_s = now_s
    return turns


def turns_of_a_compaction(harness: Harness, topic: str) -> list[float]:
    harness.create_topic(topic, cleanup_policy="compact", segment_bytes="20000000", min_cleanable_dirty_ratio="1.0")
    log = harness.broker.logs.logs[topic, 0]
    number, now_ms = 0, harness.broker.now_ms()
    while log.size_bytes < TOTAL_BYTES:
        pairs = [(b"key-%d" % ((number + at) % KEYS), VALUE) for at in range(50)]
        log.append_as_leader(build_batch(pairs, timestamp_ms=now_ms), 0, now_ms, from_client=False)
        number += 50
    log.high_watermark = log.log_end_offset
    log.roll(now_ms)

    async def compacted() -> tuple[CleaningResult, list[float]]:
        work = asyncio.create_task(harness.node.cleaner.compact_now(log))
        turns = await turns_during(work)
        return await work, turns

    result, turns = harness.run(compacted(), timeout_s=100)
    assert result.cleaned
    assert result.bytes_before >= TOTAL_BYTES
    assert result.records_kept == KEYS
    assert len(turns) > 100
    return turns


@pytest.mark.very_slow
@pytest.mark.slow
def test_the_loop_goes_on(tmp_path: Path) -> None:
    """In one of three runs at least: what a machine's host takes from it counts as its own time."""
    harness = Harness(tmp_path)
    harness.loop.close()
    harness.loop = uvloop.new_event_loop()
    harness.start()
    longest_s = []
    try:
        for attempt in range(3):
            # The first one starts the worker: a fork, whose price is the size of this process, many times a broker's.
            first_s, *others = turns_of_a_compaction(harness, f"big-{attempt}")
            longest_s.append(max(first_s / 3, *others))
            if longest_s[-1] < LONGEST_TURN_S:
                break
        assert min(longest_s) < LONGEST_TURN_S
    finally:
        harness.stop()
