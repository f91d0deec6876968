"""A scan that is continued by another finds the same as a single one, wherever the second one continues."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gregor.storage.fs.worker import ParentGone
from gregor.storage.recovery import scan_worker
from gregor.storage.recovery.scan_worker import ScanWorker
from gregor.storage.segment import scan as segment_scan
from gregor.storage.segment.check import CheckedSegment, check_segment
from gregor.storage.segment.producer_trail import ProducerTrail
from gregor.storage.segment.scan import Scan
from gregor.storage.segment.segment import Segment
from tests.storage.logs import DIRECTORY, NOW_MS, batch, header_fields
from tests.storage.memory_files import MemoryFiles

STEM = f"{DIRECTORY}/{0:020d}"
PATH = f"{STEM}.log"

events = st.lists(
    st.tuples(
        st.integers(-1, 2),  # producer
        st.sampled_from(["plain", "plain", "transactional", "commit"]),
        st.integers(0, 60),  # bytes
        st.integers(-9, 9),  # later
        st.integers(0, 9),  # a new epoch at 9
    ),
    min_size=1,
    max_size=40,
)


def log_of(drawn: list[tuple[int, str, int, int, int]]) -> bytes:
    written = bytearray()
    leader_epoch = 0
    for offset, (producer_id, kind, size, later, bump) in enumerate(drawn):
        leader_epoch += bump == 9
        written += batch(
            1,
            base_offset=offset,
            size=size,
            leader_epoch=leader_epoch,
            timestamp_ms=NOW_MS + offset + later,
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            base_sequence=offset if producer_id >= 0 else -1,
            transactional=producer_id >= 0 and kind != "plain",
            control=producer_id >= 0 and kind == "commit",
        )
    return bytes(written)


def folder_with(data: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    files.create(PATH).write(data)
    return files


def over_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def check(data: bytes, continued_at: int | None) -> tuple[Any, ...]:
    """Everything that comes of a check whose walk another one continues after so many steps, or never."""
    files = folder_with(data)
    trail = ProducerTrail()
    epochs: list[tuple[int, int]] = []
    segment = Segment.open(files, DIRECTORY, 0)
    steps = check_segment(segment, index_interval_bytes=200, producers=trail, epochs=epochs)
    taken = 0
    while True:
        try:
            scan = next(steps)
        except StopIteration as finished:
            checked: CheckedSegment = finished.value
            break
        if taken == continued_at:
            other = Scan.from_job(over_json(scan.job()))
            for _ in other.run(files.open(PATH)):
                pass
            scan.complete(over_json(other.findings()), bytes(other.offset_entries), bytes(other.time_entries))
        taken += 1
    return (
        checked,
        files.read_bytes(f"{STEM}.index"),
        files.read_bytes(f"{STEM}.timeindex"),
        epochs,
        [header_fields(one) for one in trail.batches(0)],
        (segment.max_timestamp, segment.max_timestamp_offset, segment.bytes_since_index_entry),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events, st.integers(0, 12), st.integers(0, 400))
def test_it_may_change_hands_at_any_step(
    monkeypatch: pytest.MonkeyPatch, drawn: list[tuple[int, str, int, int, int]], step: int, damage: int
) -> None:
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", 300)
    data = bytearray(log_of(drawn))
    if damage < len(data):
        data[-damage - 1] ^= 1
    assert check(bytes(data), step) == check(bytes(data), None)


def test_how_much_is_left_is_judged_by_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    data = log_of([(-1, "plain", 0, 0, 0)] * 30)
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", len(data) // 3)
    scan = Scan(0, len(data), 4096)
    assert scan.remaining_batches() == 0
    left = [(scan.batches, scan.remaining_batches()) for _ in scan.run(folder_with(data).open(PATH))]
    assert left == [(10, 20), (20, 10), (30, 0)]


# The process


def spoken(*orders: dict[str, Any]) -> list[Any]:
    """Return the responses of a worker to these orders, with the bytes behind each line."""
    sink = io.BytesIO()
    ScanWorker(io.BytesIO(b"".join(json.dumps(one).encode() + b"\n" for one in orders)), sink).serve()
    sink.seek(0)
    answers = []
    while line := sink.readline():
        answer = json.loads(line)
        if "found" in answer:
            answer["entries"] = sink.read(answer["offset_bytes"]), sink.read(answer["time_bytes"])
        answers.append(answer)
    return answers


def order(path: Path, data: bytes) -> dict[str, Any]:
    path.write_bytes(data)
    return {"path": str(path), "scan": Scan(0, len(data), 200).job()}


def test_the_process_answers_what_a_walk_of_ones_own_finds(tmp_path: Path) -> None:
    data = log_of([(7, "transactional", 30, 0, 0)] * 20)
    own = Scan(0, len(data), 200)
    for _ in own.run(folder_with(data).open(PATH)):
        pass
    (answer,) = spoken(order(tmp_path / "a.log", data))
    assert answer["found"] == over_json(own.findings())
    assert answer["entries"] == (own.offset_entries, own.time_entries)
    assert len(own.offset_entries) == answer["offset_bytes"] > 0


def test_it_gives_back_what_it_cannot_read_or_would_be_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_worker, "MAX_HEADERS", 4)
    many = order(tmp_path / "many.log", log_of([(7, "plain", 0, 0, 0)] * 5))
    few = order(tmp_path / "few.log", log_of([(7, "plain", 0, 0, 0)] * 4))
    missing = {**few, "path": str(tmp_path / "none.log")}
    answers = spoken(missing, many, few)
    assert [next(iter(one)) for one in answers] == ["given_back", "given_back", "found"]
    assert "5 batches" in answers[1]["given_back"]
    assert not Path(missing["path"]).exists()


def test_it_ends_with_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = json.dumps(order(tmp_path / "a.log", log_of([(-1, "plain", 0, 0, 0)]))).encode() + b"\n"
    worker = ScanWorker(io.BytesIO(given), io.BytesIO())
    monkeypatch.setattr(os, "getppid", lambda: 1)
    with pytest.raises(ParentGone):
        worker.serve()
