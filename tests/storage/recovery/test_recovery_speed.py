"""The duration of a start after a crash, with 200 MB that were never synced in 100 partitions: 1 s at most."""

from __future__ import annotations

import gc
import struct
import time
from pathlib import Path

import pytest

from gregor.config.broker import BrokerConfig
from gregor.protocol.ids import ZERO_UUID
from gregor.storage.folders.manager import LogManager
from gregor.storage.fs.files import OsFiles
from tests.storage.logs import NOW_MS, log_config, sequenced
from tests.support.stolen_time import StolenTime, waited_s

PARTITIONS = 100
TOTAL_BYTES = 200 * 1000 * 1000


def unsynced_folder(path: Path, batch_bytes: int) -> int:
    """A data folder as a killed broker leaves it; returns the number of batches."""
    template = sequenced(7, 0, 0, size=max(0, batch_bytes - 75))
    count = TOTAL_BYTES // PARTITIONS // len(template)
    data = bytearray(bytes(template) * count)
    for number in range(count):
        struct.pack_into(">q", data, number * len(template), number)
    for partition in range(PARTITIONS):
        folder = path / f"t-{partition}"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").write_bytes(data)
    return count * PARTITIONS


MAX_WALL_S = 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("batch_bytes", "limit_s"), [(16 * 1024, 0.5), (1024, 1.0)])
def test_a_start_after_a_crash(batch_bytes: int, limit_s: float, tmp_path: Path) -> None:
    batches = unsynced_folder(tmp_path, batch_bytes)
    manager = LogManager(BrokerConfig({"log.dirs": str(tmp_path)}), OsFiles(), lambda: NOW_MS)
    gc.collect()
    gc.freeze()  # what other tests left behind is not in a broker's heap
    stolen, queued_s = StolenTime(), waited_s()
    started_s, cpu_s = time.perf_counter(), time.process_time()
    first_log_s, longest_step_s = 0.0, 0.0
    step_s = time.thread_time()
    for log in manager.load():
        if log is not None and not first_log_s:
            first_log_s = time.perf_counter() - started_s
        now_s = time.thread_time()
        longest_step_s, step_s = max(longest_step_s, now_s - step_s), now_s
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - started_s
    queued_s = waited_s() - queued_s
    gc.unfreeze()
    print(
        f"\n{batches} batches of {batch_bytes} bytes: {wall_s * 1000:.0f} ms (CPU {cpu_s * 1000:.0f} ms, "
        f"{cpu_s / batches * 1e6:.2f} us a batch), first log after {first_log_s * 1000:.1f} ms, "
        f"{queued_s * 1000:.0f} ms waited for a processor, {stolen.share():.1%} stolen, "
        f"longest step {longest_step_s * 1000:.1f} ms"
    )
    assert sum(log.log_end_offset for log in manager.logs.values()) == batches
    assert all(log.producers.entries[7].batches[-1][1] == log.log_end_offset - 1 for log in manager.logs.values())
    assert cpu_s < limit_s
    # The time of other processes does not count. Where the host steals time, neither the whole nor a single step is
    # checked: stolen time counts as a step's own.
    if stolen.allows_wall_time():
        assert wall_s - queued_s < MAX_WALL_S
        assert longest_step_s < 0.010
    log = manager.get_or_create("t", 0, ZERO_UUID, log_config())
    assert log.append_as_leader(sequenced(8, 0, 0), 0, NOW_MS).first_offset == batches // PARTITIONS
