"""cleaner.batch_filter beside Apache Kafka's own MemoryRecords.filterTo: the same bytes (the same records, when they
are compressed: the codec libraries differ).
"""

from __future__ import annotations

import pathlib
import random
import subprocess
from typing import NamedTuple

import pytest

from gregor.protocol.records.batch import Record, RecordBatch, build_batch
from gregor.storage.cleaner.batch_filter import filter_batch, plain_records, with_delete_horizon
from gregor.storage.cleaner.offset_map import OffsetMap
from tests.storage.logs import NOW_MS
from tests.support.kafka import java_command

RETENTION_MS = 1000


class Case(NamedTuple):
    now_ms: int
    retain_empty: bool
    superseded: list[int]
    batch: bytes
    marker: bool = False

    def line(self) -> str:
        superseded = ",".join(map(str, self.superseded)) or "-"
        flags = f"{self.retain_empty:d} {self.marker:d}"
        return f"{self.now_ms} {RETENTION_MS} {flags} {superseded} {self.batch.hex()}\n"

    def ours(self) -> bytes | None:
        batch = RecordBatch(self.batch)
        if self.marker:
            left = with_delete_horizon(batch, self.now_ms + RETENTION_MS)
        else:
            latest = OffsetMap(1 << 16, 0.9, 100)
            for offset in self.superseded:
                latest.put(b"key-%d" % offset, offset + 1)
            latest.latest_offset = 1 << 40
            left = filter_batch(
                batch, latest, now_ms=self.now_ms, delete_retention_ms=RETENTION_MS, retain_empty=self.retain_empty
            )
        return None if left.data is None else bytes(left.data)


def cases(count: int) -> list[Case]:
    rng = random.Random(7)
    made = []
    for _ in range(count):
        first = rng.randrange(1000)
        offsets = sorted(rng.sample(range(first, first + 12), rng.randrange(1, 9)))
        records = [
            Record(
                offset,
                NOW_MS + rng.randrange(-300, 300),
                b"key-%d" % offset,
                None if rng.random() < 0.25 else rng.randbytes(rng.randrange(90)),
                [("header", b"x")] * rng.randrange(3),
            )
            for offset in offsets
        ]
        sequenced = rng.random() < 0.5
        append_time = rng.random() < 0.2
        batch = build_batch(
            records,
            base_offset=first,
            timestamp_ms=NOW_MS if append_time else -1,
            timestamp_type=int(append_time),
            compression=rng.randrange(5),
            leader_epoch=rng.randrange(5),
            producer_id=rng.randrange(9) if sequenced else -1,
            producer_epoch=0 if sequenced else -1,
            base_sequence=rng.randrange(2**31) if sequenced else -1,
            transactional=sequenced and rng.random() < 0.3,
        )
        superseded = [offset for offset in offsets if rng.random() < rng.choice([0, 0.4, 1])]
        case = Case(NOW_MS, rng.random() < 0.3, superseded, bytes(batch))
        made.append(case)
        # Once more, with a delete horizon that lies ahead or has passed.
        again = case._replace(superseded=[], retain_empty=False).ours()
        if again is not None:
            made.append(case._replace(now_ms=NOW_MS + rng.choice([0, RETENTION_MS - 1, RETENTION_MS]), batch=again))
        empty = case._replace(superseded=offsets, retain_empty=True).ours()
        assert empty is not None
        made.append(case._replace(batch=empty, superseded=[]))
    for kind in (b"\0\0\0\0", b"\0\0\0\1"):
        marker = build_batch(
            [Record(5, NOW_MS, kind, b"\0\0\0\0\0\0", [])],
            producer_id=3, producer_epoch=0, transactional=True, control=True,
        )  # fmt: skip
        made.append(Case(NOW_MS, False, [], bytes(marker), marker=True))
    return made


@pytest.mark.jvm
@pytest.mark.slow
def test_the_same_as_apache_kafka() -> None:
    given = cases(400)
    done = subprocess.run(
        java_command(str(pathlib.Path(__file__).with_name("FilterBatches.java"))),
        input="".join(case.line() for case in given),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split()
    assert len(answers) == len(given)
    rewritten = 0
    for case, answer in zip(given, answers, strict=True):
        ours, theirs = case.ours(), None if answer == "-" else bytes.fromhex(answer)
        rewritten += ours is not None and ours != case.batch
        if ours is None or theirs is None or not RecordBatch(theirs).compression:
            assert ours == theirs, case
            continue
        mine, kafkas = RecordBatch(ours), RecordBatch(theirs)
        assert plain_records(mine) == plain_records(kafkas), case
        assert ours[:8] + ours[12:17] + ours[21:61] == theirs[:8] + theirs[12:17] + theirs[21:61], case
    assert rewritten > 300
