"""`gregor dump-log` on small files; that its lines are Apache Kafka's is shown by test_dump_log_kafka.py."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.broker.cli.dump_log import command as dump_log
from gregor.broker.cli.dump_log.offsets import offsets_contents
from gregor.broker.cli.dump_log.records import Shown, plain_contents
from gregor.broker.cli.dump_log.records import dump_log as dump_file
from gregor.broker.cli.errors import CommandError
from gregor.protocol.records.batch import CorruptBatch, Record, build_batch
from tests.storage.logs import NOW_MS, batch
from tests.storage.memory_files import MemoryFiles


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / f"{5:020d}.log"
    path.write_bytes(bytes(batch(2, base_offset=5, compression=1) + batch(1, base_offset=7)))
    return path


def lines(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    assert dump_log.main(arguments) == code
    said = capsys.readouterr()
    return (said.err if code else said.out).splitlines()


def test_batches_and_records(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, start, first, second = lines(capsys, "--files", str(segment))
    assert (head, start) == (f"Dumping {segment}", "Log starting offset: 5")
    assert first.startswith("baseOffset: 5 lastOffset: 6 count: 2 ") and "compresscodec: gzip" in first
    assert second.endswith("isvalid: true")
    shown = lines(capsys, "--print-data-log", "--files", str(segment))
    assert len(shown) == 7
    where = f"| offset: 6 CreateTime: {NOW_MS} keySize: 3 valueSize: 20"
    assert shown[4] == f"{where} sequence: -1 headerKeys: [] key: key payload: {'v' * 20}"


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--files", ","], "--files is empty"),
        (["--deep-iteration"], "Missing option '--files'"),
        (["--files", "00000000000000000000.log"], "no such file"),
        (["--files", "orders.log"], "the name of a segment's file is an offset"),
        (["--files", "00000000000000000000.index"], "no such file"),
    ],
)
def test_unreadable_files_are_reported(arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cause in "".join(lines(capsys, *arguments, code=1))


def test_an_unknown_file_is_passed_over(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, "--files", f"notes.txt,{segment}")[:2] == ["Dumping notes.txt", f"Dumping {segment}"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".txnindex"])
def test_damaged_files_beside_a_log(segment: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    segment.with_suffix(".index").touch()
    segment.with_suffix(suffix).write_bytes(b"\0\0\0\7\0\0\0\0\1")
    flags = ["--index-sanity-check"] if suffix.endswith("index") and suffix != ".txnindex" else []
    assert (
        str(segment.with_suffix(suffix))
        in lines(capsys, "--files", str(segment.with_suffix(suffix)), *flags, code=1)[0]
    )


def test_an_index_entry_that_points_before_the_log(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment.with_suffix(".index")
    path.write_bytes((1).to_bytes(4) + (-17).to_bytes(4, signed=True))
    assert "starts at position -17" in "".join(lines(capsys, "--files", str(path), code=1))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_room_that_a_crash_of_kafka_leaves(segment: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The indexes of an empty log hold nothing, however long they are."""
    segment.write_bytes(b"")
    segment.with_suffix(".index").write_bytes(bytes(48))
    segment.with_suffix(suffix).write_bytes(bytes(48))
    path = segment.with_suffix(suffix)
    assert lines(capsys, "--files", str(path)) == [f"Dumping {path}"]


def test_aborted_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{0:020d}.txnindex"
    path.write_bytes(b"".join(number.to_bytes(size) for number, size in ((0, 2), (7, 8), (1, 8), (4, 8), (3, 8))))
    [_, line] = lines(capsys, "--files", str(path))
    assert line == "version: 0 producerId: 7 firstOffset: 1 lastOffset: 4 lastStableOffset: 3"


def test_keys_and_values_that_are_numbers(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = (-7).to_bytes(4, signed=True), (2**40).to_bytes(8)
    segment.write_bytes(bytes(build_batch([numbers], timestamp_ms=NOW_MS, base_offset=5)))
    classes = ["--key-decoder-class", "org.apache.kafka.tools.api.IntegerDecoder", "--value-decoder-class=LongDecoder"]
    found = lines(capsys, "--print-data-log", "--files", str(segment), *classes)
    assert found[-1].endswith(f"key: -7 payload: {2**40}")
    too_short = ["--key-decoder-class", "LongDecoder", "--value-decoder-class"]
    lines(capsys, "--print-data-log", *too_short, "--files", str(segment), code=1)
    lines(capsys, "--key-decoder-class", "my.Decoder", "--files", str(segment), code=1)


def test_the_rest_of_a_torn_file_is_named(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment.write_bytes(segment.read_bytes()[:-1])
    assert dump_log.main(["--files", str(segment)]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("Found ")


def test_a_group_record_of_another_kind_is_no_error() -> None:
    unknown = Record(4, 0, b"\0\x0bgroup", b"", [])
    assert offsets_contents(unknown) == ("Unknown record type 11 at offset 4, skipping.", None)
    assert (offsets_contents(Record(4, 0, b"\0\1", b"", []))[0] or "").startswith("Error at offset 4, skipping.")
    with pytest.raises(CommandError, match="has no key"):
        offsets_contents(Record(4, 0, None, b"", []))


@pytest.mark.slow
@settings(deadline=None)
@given(st.binary(max_size=200), st.booleans(), st.integers(0, 60))
def test_any_bytes(garbage: bytes, behind_a_batch: bool, cut: int) -> None:
    """Any file causes only the documented errors."""
    files = MemoryFiles()
    files.make_directory("/d")
    file = files.create(f"/d/{0:020d}.log")
    file.write((bytes(batch(2))[: None if behind_a_batch else cut]) + garbage)
    with contextlib.suppress(CommandError, CorruptBatch):
        dump_file(file, Shown(records=True, contents=True), plain_contents, lambda line: None)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.one_of(st.none(), st.binary(max_size=60)),
    st.sampled_from([b"\0\0", b"\0\1", b"\0\2", b""]),
    st.binary(max_size=60),
)
def test_any_group_record(value: bytes | None, kind: bytes, key: bytes) -> None:
    text, _ = offsets_contents(Record(0, 0, kind + key, value, []))
    assert text
