"""The loop lag of a compaction, while 200 MB are rewritten beside the event loop."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop

from gregor.broker.jobs.log_cleaner import CleaningResult
from gregor.protocol.records.batch import build_batch
from tests.broker.harness import Harness
from tests.broker.loop_lag import LoopLag, loop_lag_during

TOTAL_BYTES = 200_000_000
VALUE = bytes(range(256)) * 16
KEYS = 10_000


def compact(harness: Harness, topic: str, total_bytes: int) -> tuple[CleaningResult, LoopLag]:
    harness.create_topic(topic, cleanup_policy="compact", segment_bytes="20000000", min_cleanable_dirty_ratio="1.0")
    log = harness.broker.logs.logs[topic, 0]
    number, now_ms = 0, harness.broker.now_ms()
    while log.size_bytes < total_bytes:
        pairs = [(b"key-%d" % ((number + at) % KEYS), VALUE) for at in range(50)]
        log.append_as_leader(build_batch(pairs, timestamp_ms=now_ms), 0, now_ms, from_client=False)
        number += 50
    log.offsets.restore_high_watermark(log.log_end_offset)
    log.roll(now_ms)
    result, lag = harness.run(loop_lag_during(harness.node.cleaner.compact_now(log)), timeout_s=100)
    assert result.cleaned
    assert result.bytes_before >= total_bytes
    return result, lag


@pytest.mark.very_slow
@pytest.mark.slow
def test_the_loop_goes_on(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.loop.close()
    harness.loop = uvloop.new_event_loop()
    harness.start()
    try:
        _, starting = compact(harness, "small", 100_000)
        result, lag = compact(harness, "big", TOTAL_BYTES)
    finally:
        harness.stop()
    print(f"\nstarting the worker: {starting}\ncompacting {TOTAL_BYTES // 1_000_000} MB: {lag}")
    assert result.records_kept == KEYS
    assert lag.within(), lag
    # A fork, whose price is the size of this process, many times that of a broker: its time on the processor is judged.
    assert starting.busy_ms < 30, starting
