"""Apache Kafka's own DumpLogSegments reads what compaction has written and has nothing to complain about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gregor.protocol.records.batch import build_batch
from gregor.storage.fs.files import OsFiles
from gregor.storage.log.log import Log
from tests.storage.compacting import all_records, compact
from tests.storage.logs import NOW_MS, open_log
from tests.storage.test_dump_log import COMPLAINTS, dump

GAPS = re.compile(r"Non-consecutive offsets in \S+\n( +-?\d+ is followed by \d+\n)+")
"""The tool prints this for every compacted log, also for those that Apache Kafka compacted."""
DAY_MS = 86_400_000


def compacted(directory: Path) -> Log:
    """Two compactions: all codecs, tombstones before and after their horizon, empty batches of live producers."""
    files = OsFiles()
    log = open_log(
        files, str(directory), segment_bytes=20_000, index_interval_bytes=500,
        cleanup_policy=frozenset(["compact"]), delete_retention_ms=DAY_MS,
    )  # fmt: skip
    for now_ms in (NOW_MS, NOW_MS + DAY_MS):
        for number in range(200):
            producer = 4711 + number % 2
            known = log.producers.entries.get(producer)
            pairs = [(b"key-%d" % (number * 7 % 90), None if number % 5 == 0 else b"v" * (number % 60))] * 2
            batch = build_batch(
                [*pairs, (b"key-%d" % number, b"w" * 50)],
                timestamp_ms=now_ms + number * 37 % 500, compression=number % 5,
                producer_id=producer, producer_epoch=0, base_sequence=known.next_sequence if known else 0,
            )  # fmt: skip
            log.append_as_leader(batch, number // 90, now_ms)
        # Nothing stays of the last batch of either producer.
        last = [(b"key-%d" % key, b"end") for number in (198, 199) for key in (number, number * 7 % 90)]
        log.append_as_leader(build_batch(last, timestamp_ms=now_ms), 2, now_ms)
        log.offsets.restore_high_watermark(log.log_end_offset)
        log.roll(now_ms)
        compact(files, log, now_ms)
    log.close(clean=True)
    return log


@pytest.mark.jvm
@pytest.mark.slow
def test_dump_log_accepts_compacted_files(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log = compacted(directory)
    paths = sorted(str(path) for path in directory.iterdir())
    logs = ",".join(path for path in paths if path.endswith(".log"))
    indexes = ",".join(path for path in paths if path.endswith((".index", ".timeindex")))

    listed = GAPS.sub("", dump("--deep-iteration", "--files", logs))
    assert COMPLAINTS.findall(listed) == []
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", listed, re.MULTILINE)]
    assert offsets == [record.offset for record in all_records(log)]
    assert "deleteHorizonMs: OptionalLong[" in listed
    assert "count: 0 " in listed

    checked = dump("--index-sanity-check", "--files", indexes)
    assert COMPLAINTS.findall(checked) == []
    assert len(re.findall(r"passed sanity check|is empty", checked)) == 2 * log.segments_count
    assert COMPLAINTS.findall(dump("--verify-index-only", "--files", indexes)) == []
