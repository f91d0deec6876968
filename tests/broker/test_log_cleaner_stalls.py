"""Nobody waits for a compaction: what it costs the event loop while 200 MB are rewritten beside it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import uvloop

from broker.log_cleaner import CleaningResult
from protocol.records import build_batch
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


@pytest.mark.very_slow
@pytest.mark.slow
def test_the_loop_goes_on(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.loop.close()
    harness.loop = uvloop.new_event_loop()
    harness.start()
    try:
        harness.create_topic("big", cleanup_policy="compact", segment_bytes="20000000", min_cleanable_dirty_ratio="1.0")
        log = harness.broker.logs.logs["big", 0]
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
        # The first one starts the worker: a fork, whose price is the size of this process, many times a broker's.
        first_s, *others = turns
        assert first_s < 3 * LONGEST_TURN_S
        assert max(others) < LONGEST_TURN_S
    finally:
        harness.stop()
