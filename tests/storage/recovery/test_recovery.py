"""From a partition's folder to its log: clean, cut at every byte, with flipped bytes, with files missing."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.storage.log.contents import LogIdentity
from gregor.storage.log.epochs import FILE_NAME, parse_epochs
from gregor.storage.log.log import Log
from gregor.storage.producers.state import DEFAULT_EXPIRATION_MS
from gregor.storage.recovery import recovery
from gregor.storage.recovery.recovery import FolderLoader, LogCheckpoint, is_segment_name, unchecked_bytes
from gregor.storage.segment import scan as segment_scan
from gregor.storage.segment.segment import OldMessageFormat
from tests.storage.logs import DIRECTORY, NOW_MS, batch, log_config, old_message, open_log, read_offsets, sequenced
from tests.storage.memory_files import MemoryFiles
from tests.storage.twins import indexes_of, valid_batches

INTERVAL = 150
ROLLING: dict[str, Any] = {"segment_bytes": 400, "index_interval_bytes": INTERVAL}


def load(
    files: MemoryFiles,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    whole_from: int | None = None,
    **settings: object,
) -> tuple[Log, list[str]]:
    """The log, and what is to be unlinked."""
    loader = FolderLoader(
        files,
        DIRECTORY,
        LogIdentity("orders", 0),
        log_config(**(ROLLING | settings)),
        LogCheckpoint(log_start_offset, recovery_point, whole_from),
        producer_expiration_ms=DEFAULT_EXPIRATION_MS,
        now_ms=NOW_MS,
    )
    steps = loader.load(clean)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value, loader.unlinkable


def written(count: int = 14) -> MemoryFiles:
    """Write a log without closing it: several segments, an idempotent producer, two leader epochs, nothing synced."""
    files = MemoryFiles()
    log = open_log(files, **ROLLING)
    for number in range(count):
        epoch = 2 if number < count // 2 else 5
        data = sequenced(7, 0, number // 2 * 2, 2) if number % 2 == 0 else batch(1, timestamp_ms=NOW_MS + number % 5)
        log.append_as_leader(data, epoch, NOW_MS)
    return files


def segment_names(files: MemoryFiles) -> list[str]:
    return sorted(entry.name for entry in files.list_directory(DIRECTORY) if is_segment_name(entry.name))


def contents(files: MemoryFiles, suffix: str = "") -> dict[str, bytes]:
    return {
        entry.name: files.read_bytes(f"{DIRECTORY}/{entry.name}")
        for entry in files.list_directory(DIRECTORY)
        if entry.name.endswith(suffix)
    }


def copy_of(names: dict[str, bytes]) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    for name, data in names.items():
        files.create(f"{DIRECTORY}/{name}").write(data)
    return files


def producers_of(log: Log) -> dict[int, tuple[int, list[Any], int]]:
    return {
        pid: (entry.epoch, list(entry.batches), entry.next_sequence) for pid, entry in log.producers.entries.items()
    }


def twin(names: dict[str, bytes]) -> tuple[dict[str, bytes], int, list[tuple[int, int]], dict[int, int]]:
    """Recover from offset 0, slowly, and return the expected segments, log end offset, epochs and next sequences."""
    segments: dict[str, bytes] = {}
    end_offset = 0
    epochs: list[tuple[int, int]] = []
    sequences: dict[int, int] = {}
    for name in sorted(name for name in names if name.endswith(".log")):
        base_offset, data = int(name[:20]), names[name]
        if base_offset < end_offset:
            break
        end_offset = base_offset
        found = valid_batches(data, base_offset)
        for _, _, next_offset, one in found:
            end_offset = next_offset
            if one.leader_epoch > (epochs[-1][0] if epochs else -1):
                epochs.append((one.leader_epoch, one.base_offset))
            if one.producer_id >= 0:
                sequences[one.producer_id] = one.base_sequence + one.last_offset_delta + 1
        end = found[-1][1] if found else 0
        segments[name] = data[:end]
        if end < len(data):
            break
    return segments, end_offset, epochs, sequences


def assert_is_twin(files: MemoryFiles, log: Log, names: dict[str, bytes]) -> None:
    segments, end_offset, epochs, sequences = twin(names)
    assert contents(files, ".log") == segments
    assert log.log_end_offset == end_offset
    assert log.epochs.entries() == [entry for entry in epochs if entry[1] < end_offset]
    assert {pid: entry.next_sequence for pid, entry in log.producers.entries.items()} == sequences
    for name, data in segments.items():
        index, time_index = indexes_of(data, INTERVAL, int(name[:20]))
        assert files.read_bytes(f"{DIRECTORY}/{name[:20]}.index") == index
        assert files.read_bytes(f"{DIRECTORY}/{name[:20]}.timeindex") == time_index


# After a crash


def test_a_crash_of_the_process_loses_nothing() -> None:
    files = written()
    names = contents(files)
    log, garbage = load(files)
    assert len(segment_names(files)) > 2
    assert log.log_end_offset == 21
    assert read_offsets(log, 0) == list(range(21))
    assert log.recovery_point == 0
    assert garbage == []
    assert_is_twin(files, log, names)
    assert log.append_as_leader(sequenced(7, 0, 12, 2), 5, NOW_MS).duplicate
    assert log.append_as_leader(sequenced(7, 0, 14, 2), 5, NOW_MS).first_offset == 21


def test_cut_at_every_byte_of_the_last_segment() -> None:
    names = contents(written(8))
    last = max(name for name in names if name.endswith(".log"))
    for cut in range(len(names[last]) + 1):
        damaged = names | {last: names[last][:cut]}
        files = copy_of(damaged)
        log, _ = load(files)
        assert_is_twin(files, log, damaged)
        assert read_offsets(log, 0) == list(range(log.log_end_offset))


@pytest.mark.parametrize("mask", [0x01, 0x40, 0xFF])
def test_bytes_anywhere_in_the_log_flipped(mask: int) -> None:
    names = contents(written(8))
    for name in sorted(name for name in names if name.endswith(".log")):
        for where in range(0, len(names[name]), 5):
            data = bytearray(names[name])
            data[where] ^= mask
            damaged = names | {name: bytes(data)}
            files = copy_of(damaged)
            log, garbage = load(files)
            assert_is_twin(files, log, damaged)
            assert all(path.endswith(".deleted") and files.exists(path) for path in garbage)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_damage_behind_the_recovery_point_leaves_a_prefix(data: st.DataObject) -> None:
    names = contents(written())
    whole = copy_of(names)
    logs = {int(name[:20]): names[name] for name in names if name.endswith(".log")}
    ends = [next_offset for base, log_bytes in logs.items() for _, _, next_offset, _ in valid_batches(log_bytes, base)]
    recovery_point = data.draw(st.sampled_from([0, *ends]))
    name = data.draw(st.sampled_from(sorted(name for name in names if name.endswith((".log", ".index", ".timeindex")))))
    damaged = bytearray(names[name])
    base_offset = int(name[:20])
    # Below the recovery point everything was synced; of the indexes only what belongs to it.
    first = 0
    if name.endswith(".log"):
        first = max((end for _, end, next_offset, _ in valid_batches(names[name], base_offset)
                     if next_offset <= recovery_point), default=0)  # fmt: skip
    elif base_offset <= recovery_point:
        return
    if first < len(damaged):
        where = data.draw(st.integers(first, len(damaged) - 1))
        damaged[where : where + data.draw(st.integers(1, 9))] = data.draw(st.binary(max_size=9))
    files = copy_of(names | {name: bytes(damaged)})
    log, _ = load(files, recovery_point=recovery_point)
    full, _ = load(whole)
    assert log.log_end_offset >= min(recovery_point, full.log_end_offset)
    assert min(recovery_point, log.log_end_offset) - log.recovery_point in (0, recovery_point in logs)
    if name.endswith(".log"):
        _, end_offset, _, sequences = twin(names | {name: bytes(damaged)})
        assert log.log_end_offset == end_offset
        assert {pid: entry.next_sequence for pid, entry in log.producers.entries.items()} == sequences
    else:
        assert contents(files, ".log") == contents(whole, ".log")


def test_segments_behind_the_damage_go() -> None:
    names = contents(written())
    logs = sorted(name for name in names if name.endswith(".log"))
    second = logs[1]
    damaged = bytearray(names[second])
    damaged[-1] ^= 1
    files = copy_of(names | {second: bytes(damaged)})
    log, garbage = load(files)
    assert segment_names(files) == logs[:2]
    assert sorted(garbage) == sorted(
        f"{DIRECTORY}/{name[:20]}{suffix}.deleted" for name in logs[2:] for suffix in (".log", ".index", ".timeindex")
    )
    assert log.log_end_offset < int(logs[2][:20])
    # Their snapshots are of a state that is no more.
    assert all(int(name[:20]) <= log.log_end_offset for name in contents(files, ".snapshot"))


def test_what_lies_below_the_recovery_point_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    names = contents(written())
    logs = sorted(name for name in names if name.endswith(".log"))
    recovery_point = int(logs[-1][:20])
    damaged = bytearray(names[logs[0]])
    damaged[70] ^= 1
    files = copy_of(names | {logs[0]: bytes(damaged)})
    log, _ = load(files, recovery_point=recovery_point)
    assert log.log_end_offset == 21
    assert files.read_bytes(f"{DIRECTORY}/{logs[0]}") == damaged
    assert log.recovery_point == recovery_point - 1, "the segment before may lack the end of its time index"


def test_a_recovery_point_inside_a_segment_begins_there() -> None:
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=INTERVAL)
    for number in range(40):
        if number == 30:
            log.flusher.flush(NOW_MS)
        log.append_as_leader(sequenced(7, 0, number), 0, NOW_MS)
    names = contents(files)
    assert len(names[f"{0:020d}.index"]) < len(indexes_of(names[f"{0:020d}.log"], INTERVAL)[0])
    damaged = bytearray(names[f"{0:020d}.log"])
    damaged[70] ^= 1
    files = copy_of(names | {f"{0:020d}.log": bytes(damaged)})
    recovered, _ = load(files, recovery_point=30, segment_bytes=1 << 20)
    assert recovered.log_end_offset == 40
    assert contents(files, "index")[f"{0:020d}.index"] == indexes_of(names[f"{0:020d}.log"], INTERVAL)[0]
    assert producers_of(recovered) == producers_of(log)


def test_a_recovery_point_of_another_time_is_not_believed() -> None:
    # Truncated, or made anew under the same name, after the checkpoint was written.
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=INTERVAL)
    for _ in range(40):
        log.append_as_leader(batch(1), 0, NOW_MS)
    damaged = bytearray(files.read_bytes(f"{DIRECTORY}/{0:020d}.log"))
    damaged[len(damaged) // 2] ^= 1
    files.create(f"{DIRECTORY}/{0:020d}.log").write(damaged)
    recovered, _ = load(files, recovery_point=1000, segment_bytes=1 << 20)
    assert recovered.log_end_offset == 20
    assert recovered.recovery_point <= 20


def test_a_segment_inside_the_one_before_goes() -> None:
    names = contents(written())
    logs = sorted(name for name in names if name.endswith(".log"))
    files = copy_of(names | {f"{int(logs[1][:20]) - 1:020d}.log": names[logs[1]]})
    log, garbage = load(files)
    assert segment_names(files) == logs[:1]
    assert log.log_end_offset == int(logs[1][:20])
    assert garbage


def test_missing_indexes_are_made_anew() -> None:
    names = contents(written())
    files = copy_of({name: data for name, data in names.items() if not name.endswith("index")})
    log, _ = load(files)
    assert_is_twin(files, log, names)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "half an entry"])
def test_a_missing_or_broken_index_below_the_recovery_point_is_made_anew(clean: bool, damage: str) -> None:
    files = written()
    open_and_close(files)
    names = contents(files)
    first = min(name for name in names if name.endswith(".log"))[:20]
    for suffix in (".index", ".timeindex"):
        broken = {name: data for name, data in names.items() if name != first + suffix}
        if damage == "half an entry":
            broken[first + suffix] = names[first + suffix] + b"\x01"
        files = copy_of(broken)
        log, _ = load(files, clean=clean, recovery_point=21)
        assert log.log_end_offset == 21
        assert contents(files, suffix) == contents(copy_of(names), suffix)


def test_the_last_index_of_a_clean_log_is_not_believed_blindly() -> None:
    # It decides where the log ends: an entry that points nowhere must not cost records.
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=INTERVAL)
    for _ in range(20):
        log.append_as_leader(batch(1), 0, NOW_MS)
    log.close(clean=True)
    names = contents(files)
    index = f"{0:020d}.index"
    wrong = b"".join(struct.pack(">ii", o, position + 3) for o, position in struct.iter_unpack(">ii", names[index]))
    files = copy_of(names | {index: wrong})
    recovered, _ = load(files, clean=True, segment_bytes=1 << 20)
    assert recovered.log_end_offset == 20
    assert files.read_bytes(f"{DIRECTORY}/{index}") == names[index] != wrong


def test_indexes_that_an_unclean_kafka_left_preallocated() -> None:
    names = contents(written())
    last = max(name for name in names if name.endswith(".log"))[:20]
    padded = names | {last + suffix: names[last + suffix] + bytes(240) for suffix in (".index", ".timeindex")}
    files = copy_of(padded)
    log, _ = load(files)
    assert_is_twin(files, log, names)


def test_an_old_message_format_is_refused_and_left_as_it_is() -> None:
    data = old_message()
    files = copy_of({f"{0:020d}.log": data})
    with pytest.raises(OldMessageFormat):
        load(files)
    assert files.read_bytes(f"{DIRECTORY}/{0:020d}.log") == data


def test_an_empty_folder_becomes_a_new_log() -> None:
    log, _ = load(copy_of({}), log_start_offset=5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert log.append_as_leader(batch(), 0, NOW_MS).first_offset == 5


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_its_start_is_begun_anew(clean: bool) -> None:
    files = written()
    open_and_close(files)
    log, garbage = load(files, clean=clean, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.segments_count) == (50, 50, 1)
    assert log.producers.entries == {}
    assert log.epochs.entries() == []
    assert f"{DIRECTORY}/{0:020d}.log.deleted" in garbage


def test_log_start_offset_inside_the_log() -> None:
    files = written()
    log, _ = load(files, log_start_offset=13)
    assert (log.log_start_offset, log.log_end_offset) == (13, 21)
    assert log.epochs.entries()[0][1] == 11


# Epochs and producers


def test_epochs_that_were_not_synced_come_from_the_batches() -> None:
    names = contents(written())
    for stale in (b"", b"0\n1\n2 0\n", b"0\n2\n2 0\n4 3\n", b"0\n3\n2 0\n5 11\n9 40\n"):
        files = copy_of(names | {"leader-epoch-checkpoint": stale})
        log, _ = load(files)
        assert log.epochs.entries() == [(2, 0), (5, 11)]


@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
@pytest.mark.parametrize("recovery_point", [0, 6])
def test_no_batch_is_read_twice_for_its_epoch(
    content: bytes | None, recovery_point: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of the whole log restores the file of epochs, too; after a partial check all batches are read for it."""
    files = written()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    files.unlink(path)
    if content is not None:
        files.create(path).write(content)
    read = FolderLoader._read_epochs
    readings: list[None] = []

    def counted(loader: FolderLoader) -> recovery.Steps:
        readings.append(None)
        return read(loader)

    monkeypatch.setattr(FolderLoader, "_read_epochs", counted)
    log, _ = load(files, recovery_point=recovery_point)
    assert log.epochs.entries() == [(2, 0), (5, 11)]
    assert len(readings) == (1 if recovery_point else 0)


def test_trusted_epochs_are_kept() -> None:
    names = contents(written())
    files = copy_of(names | {"leader-epoch-checkpoint": b"0\n3\n0 0\n1 1\n2 2\n"})
    log, _ = load(files, recovery_point=15)
    assert log.epochs.entries()[:3] == [(0, 0), (1, 1), (2, 2)]
    assert log.latest_epoch() == 5


@pytest.mark.parametrize("clean", [True, False])
def test_an_unreadable_epoch_file_is_made_from_the_whole_log(clean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "BATCHES_PER_STEP", 2)
    files = written()
    open_and_close(files)
    files.write_atomically(f"{DIRECTORY}/leader-epoch-checkpoint", b"garbage")
    log, _ = load(files, clean=clean, recovery_point=21)
    assert log.epochs.entries() == [(2, 0), (5, 11)]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 21), st.sets(st.integers(0, 6)), st.booleans())
def test_producers_are_the_same_from_any_snapshot(recovery_point: int, lost: set[int], damaged: bool) -> None:
    names = contents(written())
    complete, _ = load(copy_of(names))
    snapshots = sorted(name for name in names if name.endswith(".snapshot"))
    for number, name in enumerate(snapshots):
        if number in lost and damaged:
            names[name] = names[name][:-1]
        elif number in lost:
            del names[name]
    files = copy_of(names)
    log, _ = load(files, recovery_point=recovery_point)
    last_batches = {pid: (entry.epoch, entry.batches[-1]) for pid, entry in log.producers.entries.items()}
    assert last_batches == {pid: (entry.epoch, entry.batches[-1]) for pid, entry in complete.producers.entries.items()}
    # The next start finds the state of the log's end in a snapshot of its own.
    assert f"{log.log_end_offset:020d}.snapshot" in contents(files, ".snapshot")


def test_a_clean_log_of_a_kafka_without_snapshots_has_no_producers() -> None:
    files = written()
    open_and_close(files)
    names = {name: data for name, data in contents(files).items() if not name.endswith(".snapshot")}
    log, _ = load(copy_of(names), clean=True)
    assert log.producers.entries == {}


# After a clean stop


def open_and_close(files: MemoryFiles) -> Log:
    log, _ = load(files)
    log.close(clean=True)
    return log


def test_a_clean_start_is_where_the_stop_was() -> None:
    files = written()
    before = open_and_close(files)
    names = contents(files)
    log, garbage = load(files, clean=True)
    assert contents(files) == names
    assert garbage == []
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 21, 21)
    assert log.epochs.entries() == before.epochs.entries()
    assert {p: e.batches[-1] for p, e in log.producers.entries.items()} == {
        p: e.batches[-1] for p, e in before.producers.entries.items()
    }


def test_a_clean_start_reads_little() -> None:
    files = written(40)
    open_and_close(files)
    files.calls.clear()
    load(files, clean=True)
    assert files.calls["read"] < 20
    assert files.calls["write_atomically"] == files.calls["write"] == 0


# Crashes in the middle


@pytest.mark.parametrize("operation", ["write", "write_atomically", "truncate", "rename", "unlink", "create", "read"])
def test_recovery_that_is_cut_short_is_taken_up_again(operation: str) -> None:
    names = contents(written())
    logs = sorted(name for name in names if name.endswith(".log"))
    damaged = bytearray(names[logs[2]])
    damaged[-1] ^= 1
    names = {name: data for name, data in names.items() if name != logs[1][:20] + ".index"}
    names |= {logs[2]: bytes(damaged), f"{0:020d}.log.deleted": b"", "leader-epoch-checkpoint": b"0\n1\n2 0\n"}
    reference = copy_of(names)
    expected, _ = load(reference)
    for step in range(1000):
        files = copy_of(names)
        files.calls.clear()
        files.fail(operation, after=step)
        try:
            load(files)
        except Exception:
            log, _ = load(files)
            assert contents(files, ".log") == contents(reference, ".log")
            assert contents(files, "index") == contents(reference, "index")
            assert log.epochs.entries() == expected.epochs.entries()
            assert producers_of(log).keys() == producers_of(expected).keys()
        else:
            break
    assert 0 < step < 999


def test_a_machine_that_crashes_after_recovery_finds_the_dropped_segments_gone() -> None:
    names = contents(written())
    logs = sorted(name for name in names if name.endswith(".log"))
    damaged = bytearray(names[logs[1]])
    damaged[-1] ^= 1
    files = copy_of(names | {logs[1]: bytes(damaged)})
    for name in names:
        files.sync_file(f"{DIRECTORY}/{name}")
    files.sync_directory(DIRECTORY)
    load(files)
    files.crash()
    assert segment_names(files) == logs[:2]


# Steps and sizes


def test_steps_report_all_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", 128)
    files = written()
    total = sum(len(data) for data in contents(files, ".log").values())
    loader = FolderLoader(
        files,
        DIRECTORY,
        LogIdentity("orders", 0),
        log_config(**ROLLING),
        LogCheckpoint(),
        producer_expiration_ms=DEFAULT_EXPIRATION_MS,
        now_ms=NOW_MS,
    )
    steps = list(loader.load(clean=False))
    assert sum(steps) == total == unchecked_bytes(files, DIRECTORY, 0)
    assert len(steps) > 14


def test_unchecked_bytes_begin_with_the_segment_of_the_recovery_point() -> None:
    files = copy_of({f"{offset:020d}.log": bytes(size) for offset, size in ((0, 10), (5, 20), (9, 40))})
    assert [unchecked_bytes(files, DIRECTORY, point) for point in (0, 4, 5, 8, 9, 99)] == [70, 70, 60, 60, 40, 40]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{0:020d}.log", True),
        (f"{0:020d}.index", False),
        (f"{0:020d}.log.deleted", False),
        ("0.log", False),
        (f"{0:020d}", False),
        ("leader-epoch-checkpoint", False),
        ("x" * 20 + ".log", False),
    ],
)
def test_segment_names(name: str, expected: bool) -> None:
    assert is_segment_name(name) is expected


def test_epochs_that_were_not_written_before_a_crash_are_those_of_the_batches() -> None:
    files = written()
    checkpoint = parse_epochs(files.read_bytes(f"{DIRECTORY}/{FILE_NAME}"))
    assert checkpoint == [(2, 0)]
    log, _ = load(files)
    assert log.epochs.entries() == [(2, 0), (5, 11)]
