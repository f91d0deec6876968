"""Data folders with one thing wrong each: it is found, and nothing else is."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.config.topic import LogConfig
from gregor.protocol.records.batch import iter_batches
from gregor.storage.folders.checkpoints import format_offsets
from gregor.storage.folders.identity import MetaProperties, format_meta_properties, format_partition_metadata
from gregor.storage.log.contents import LogIdentity
from gregor.storage.log.log import Log
from gregor.storage.producers.entry import ProducerEntry
from gregor.storage.producers.snapshot import format_snapshot
from gregor.storage.recovery.recovery import FolderLoader, LogCheckpoint
from gregor.storage.verify.folder import Totals, find_duplicates, read_folder, verify_folder
from gregor.storage.verify.segment import MAX_PER_FILE, Finding
from tests.storage.logs import NOW_MS, batch, open_log, patched, sequenced
from tests.storage.memory_files import MemoryFiles

FOLDER = "/data"
PARTITION = f"{FOLDER}/orders-0"
STEM = f"{PARTITION}/{0:020d}"
BATCHES = 40


def content() -> dict[str, bytes]:
    """The files of a data folder that was stopped cleanly: three segments, two leader epochs, two producers."""
    files = MemoryFiles()
    log = open_log(files, PARTITION, segment_bytes=2000, index_interval_bytes=300)
    for number in range(BATCHES):
        timestamp_ms = NOW_MS + (number * 37) % 500
        data = sequenced(7 + number % 2, 0, number // 2 * 2, 2, timestamp_ms=timestamp_ms)
        log.append_as_leader(data, number // 20, NOW_MS)
    log.close(clean=True)
    end = {("orders", 0): log.log_end_offset}
    made = {
        f"{PARTITION}/partition.metadata": format_partition_metadata(b"x" * 16),
        f"{FOLDER}/meta.properties": format_meta_properties(MetaProperties(0, 1, "cluster"), NOW_MS),
        f"{FOLDER}/recovery-point-offset-checkpoint": format_offsets(end),
        f"{FOLDER}/replication-offset-checkpoint": format_offsets(end),
        f"{FOLDER}/log-start-offset-checkpoint": format_offsets({}),
        f"{FOLDER}/.kafka_cleanshutdown": b"{}",
    }
    for entry in files.list_directory(PARTITION):
        made[f"{PARTITION}/{entry.name}"] = files.read_bytes(f"{PARTITION}/{entry.name}")
    return made


CLEAN = content()
LOGS = sorted(name for name in CLEAN if name.endswith(".log"))
LAST_STEM = LOGS[-1].removesuffix(".log")


def verify(content: dict[str, bytes], *, records: bool = False, in_use: bool = False) -> list[Finding]:
    files = MemoryFiles()
    for path, data in content.items():
        files.make_directory(path.rpartition("/")[0])
        files.create(path).write(data)
    found: list[Finding] = []
    report = read_folder(files, FOLDER, found.append)._replace(in_use=in_use)
    find_duplicates([report], found.append)
    for progress in verify_folder(files, report, found.append, Totals(), records=records):
        assert 0 <= progress.done_bytes <= progress.total_bytes
    return found


def problems(content: dict[str, bytes], **flags: bool) -> list[Finding]:
    return [finding for finding in verify(content, **flags) if not finding.harmless]


def put(data: bytes, layout: str, position: int, *values: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, *values)
    return bytes(changed)


def test_a_whole_folder() -> None:
    assert len(LOGS) == 3
    assert verify(CLEAN) == [] == verify(CLEAN, records=True)
    files = MemoryFiles()
    totals = Totals()
    for path, data in CLEAN.items():
        files.make_directory(path.rpartition("/")[0])
        files.create(path).write(data)
    report = read_folder(files, FOLDER, lambda finding: None)
    assert report.was_clean and not report.in_use
    *_, last = verify_folder(files, report, lambda finding: None, totals)
    assert last.done_bytes == last.total_bytes == totals.bytes == sum(len(CLEAN[name]) for name in LOGS)
    assert (totals.partitions, totals.segments, totals.batches) == (1, 3, BATCHES)


Damage = Callable[[dict[str, bytes]], None]


def change(path: str, how: Callable[[bytes], bytes]) -> Damage:
    def damage(content: dict[str, bytes]) -> None:
        content[path] = how(content[path])

    return damage


def renamed_epoch(data: bytes) -> bytes:
    """Set the leader epoch of the last batch to 9, which its checksum does not cover."""
    last = list(iter_batches(data))[-1]
    return put(data, ">i", last.position + 12, 9)


def moved_end(data: bytes) -> bytes:
    """Let the last batch begin an offset later, which its checksum does not cover either."""
    last = list(iter_batches(data))[-1]
    return put(data, ">q", last.position, last.base_offset + 1)


def other_sequence(data: bytes) -> bytes:
    entry = ProducerEntry(7)
    entry.add(0, (99, 2 * BATCHES - 3, 1, NOW_MS))
    return format_snapshot([entry])


def snapshot_of_the_end() -> str:
    return max(name for name in CLEAN if name.endswith(".snapshot"))


EPOCHS = f"{PARTITION}/leader-epoch-checkpoint"
FIRST_OF_EPOCH_1 = next(batch.position for batch in iter_batches(CLEAN[LOGS[1]]) if batch.leader_epoch == 1)

ONE_WRONG: dict[str, tuple[Damage, str, str]] = {
    # the change to the folder, the file that the finding names, its text
    "checksum": (change(LOGS[0], lambda data: put(data, ">I", 17, 5)), LOGS[0], "CRC-32C"),
    "record bytes": (change(LOGS[1], lambda data: data[:-1] + b"?"), LOGS[1], "CRC-32C"),
    "magic": (change(LOGS[0], lambda data: put(data, ">b", 16, 7)), LOGS[0], "format 7"),
    "length": (change(LOGS[0], lambda data: put(data, ">i", 8, -1)), LOGS[0], "a length of -1"),
    "offsets go back": (change(LOGS[1], lambda data: put(data, ">q", 0, 0)), LOGS[1], "base offset 0 where"),
    "torn end": (change(LOGS[2], lambda data: data[:-3]), LOGS[2], "of which"),
    "stray end": (change(LOGS[2], lambda data: data + b"12345"), LOGS[2], "5 bytes are no batch"),
    "zeros at the end": (change(LOGS[2], lambda data: data + bytes(100)), LOGS[2], "format 0"),
    "into the next": (
        change(LOGS[0], lambda data: data + bytes(sequenced(9, 0, 0, base_offset=2 * BATCHES))),
        LOGS[0],
        "reaches into the next segment",
    ),
    "leader epoch of a batch": (change(LOGS[2], renamed_epoch), EPOCHS, "is of leader epoch 9, the file has 1"),
    "first batch of an epoch": (
        change(LOGS[1], lambda data: put(data, ">i", FIRST_OF_EPOCH_1 + 12, 0)),
        EPOCHS,
        "offset 40 is of leader epoch 0, the file has 1",
    ),
    "epochs file": (change(EPOCHS, lambda data: b"0\n1\n0 7\n"), EPOCHS, "is of leader epoch 0, the file has None"),
    "epochs order": (change(EPOCHS, lambda data: b"0\n2\n1 0\n0 7\n"), EPOCHS, "follows epoch 1"),
    "epochs text": (change(EPOCHS, lambda data: b"hello"), EPOCHS, "not a leader epoch checkpoint"),
    "epochs behind the end": (
        change(EPOCHS, lambda data: b"0\n3\n0 0\n1 40\n2 900\n"),
        EPOCHS,
        "begins at 900, but the log ends at 80",
    ),
    "index offset": (
        change(f"{STEM}.index", lambda data: put(data, ">i", 0, struct.unpack_from(">i", data)[0] - 1)),
        f"{STEM}.index",
        "the last of no batch",
    ),
    "index position": (
        change(f"{STEM}.index", lambda data: put(data, ">i", 4, struct.unpack_from(">i", data, 4)[0] + 1)),
        f"{STEM}.index",
        "where no batch begins",
    ),
    "index order": (
        change(f"{STEM}.index", lambda data: data[8:16] + data[:8] + data[16:]),
        f"{STEM}.index",
        "does not ascend",
    ),
    "index size": (change(f"{STEM}.index", lambda data: data + b"1"), f"{STEM}.index", "no multiple of 8"),
    "index beyond": (
        change(f"{STEM}.index", lambda data: data + struct.pack(">ii", 10_000, 10_000)),
        f"{STEM}.index",
        "behind the end of the log",
    ),
    "no index": (lambda content: content.pop(f"{STEM}.index") and None, f"{STEM}.index", "missing"),
    "time": (
        change(f"{STEM}.timeindex", lambda data: put(data, ">q", 0, struct.unpack_from(">q", data)[0] - 1)),
        f"{STEM}.timeindex",
        "the latest timestamp is",
    ),
    "time order": (
        change(f"{STEM}.timeindex", lambda data: data + struct.pack(">qi", 5, 3)),
        f"{STEM}.timeindex",
        "does not ascend",
    ),
    "last time": (
        change(f"{STEM}.timeindex", lambda data: data[:12]),
        f"{STEM}.timeindex",
        "but records go up to",
    ),
    "snapshot checksum": (
        change(snapshot_of_the_end(), lambda data: data[:-1] + b"?"),
        snapshot_of_the_end(),
        "wrong checksum",
    ),
    "snapshot contents": (change(snapshot_of_the_end(), other_sequence), snapshot_of_the_end(), "sequence 99"),
    "recovery point": (
        change(f"{FOLDER}/recovery-point-offset-checkpoint", lambda data: format_offsets({("orders", 0): 81})),
        f"{FOLDER}/recovery-point-offset-checkpoint",
        "has offset 81 in the checkpoint, but its log ends at 80",
    ),
    "end": (
        change(LOGS[2], moved_end),
        f"{FOLDER}/recovery-point-offset-checkpoint",
        "was closed at offset 80, but its log ends at 81",
    ),
    "checkpoint text": (
        change(f"{FOLDER}/replication-offset-checkpoint", lambda data: b"0\n1\nnonsense\n"),
        f"{FOLDER}/replication-offset-checkpoint",
        "topic, partition and offset expected",
    ),
    "topic id": (
        change(f"{PARTITION}/partition.metadata", lambda data: b"version: 0\n"),
        f"{PARTITION}/partition.metadata",
        "two lines expected",
    ),
    "meta": (
        change(f"{FOLDER}/meta.properties", lambda data: b"version=7\n"),
        f"{FOLDER}/meta.properties",
        "version 0 or 1",
    ),
    "no meta": (
        lambda content: content.pop(f"{FOLDER}/meta.properties") and None,
        f"{FOLDER}/meta.properties",
        "missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_WRONG)
def test_one_thing_wrong(name: str) -> None:
    damage, path, what = ONE_WRONG[name]
    content = dict(CLEAN)
    damage(content)
    found = problems(content)
    assert [finding.path for finding in found] == [path] * len(found)
    assert found and what in found[0].what
    assert all(finding.remedy for finding in found)


def test_the_same_partition_in_two_folders() -> None:
    files = MemoryFiles()
    reports = []
    for folder in ("/one", "/two"):
        files.make_directory(f"{folder}/orders-0")
        reports.append(read_folder(files, folder, lambda finding: None))
    found: list[Finding] = []
    find_duplicates(reports, found.append)
    assert [finding.path for finding in found] == ["/one/orders-0", "/two/orders-0"]


def test_a_running_broker_may_be_writing() -> None:
    """A torn batch at the very end and indexes that are behind are no problem then; damage before them is."""
    content = dict(CLEAN)
    content[LOGS[-1]] += bytes(sequenced(7, 0, 9, base_offset=900))[:70]
    del content[f"{LAST_STEM}.index"]
    assert len(problems(content)) == 2
    content[f"{LAST_STEM}.index"] = b""
    assert problems(content, in_use=True) == []
    content[LOGS[-1]] = put(content[LOGS[-1]], ">I", 17, 5)
    assert len(problems(content, in_use=True)) == 1


@pytest.mark.parametrize("in_use", [True, False])
@pytest.mark.parametrize("happened", ["replaced", "removed", "untouched"])
def test_a_segment_that_is_replaced_during_its_walk_has_no_problems(happened: str, in_use: bool) -> None:
    """Its index is that of the segment that replaced it, so the two do not agree."""
    files = MemoryFiles()
    for path, data in CLEAN.items():
        files.make_directory(path.rpartition("/")[0])
        files.create(path).write(put(data, ">i", 4, 1) if path == f"{STEM}.index" else data)
    found: list[Finding] = []
    report = read_folder(files, FOLDER, found.append)._replace(in_use=in_use)
    for number, _ in enumerate(verify_folder(files, report, found.append, Totals())):
        if number == 0 and happened != "untouched":
            files.rename(f"{STEM}.log", f"{STEM}.log.deleted")
        if number == 0 and happened == "replaced":
            files.create(f"{STEM}.log").write(CLEAN[f"{STEM}.log"])
    if in_use and happened != "untouched":
        assert [(finding.path, finding.harmless) for finding in found] == [(f"{STEM}.log", True)]
    else:
        assert {(finding.path, finding.harmless) for finding in found} == {(f"{STEM}.index", False)}


@pytest.mark.parametrize("in_use", [True, False])
def test_a_partition_that_is_removed_before_its_walk(in_use: bool) -> None:
    """Of a running broker that is a note; otherwise it is a problem. The other partitions are checked."""
    files = MemoryFiles()
    for path, data in CLEAN.items():
        for copy in {path, path.replace("orders-0", "orders-1")}:
            files.make_directory(copy.rpartition("/")[0])
            files.create(copy).write(data)
    found: list[Finding] = []
    totals = Totals()
    report = read_folder(files, FOLDER, found.append)._replace(in_use=in_use)
    files.rename(PARTITION, f"{PARTITION}-removed")
    for _ in verify_folder(files, report, found.append, totals):
        pass
    assert [(finding.path, finding.harmless) for finding in found] == [(PARTITION, in_use)]
    assert totals.batches == BATCHES


def test_what_is_worth_a_note_only() -> None:
    content = dict(CLEAN)
    del content[LOGS[1]]
    content[f"{PARTITION}/{0:020d}.log.deleted"] = b""
    content[f"{FOLDER}/notes/readme"] = b""
    content[f"{FOLDER}/old-0.{'0' * 32}-delete/x"] = b""
    content[f"{STEM}.index"] += bytes(80)
    found = verify(content)
    assert all(finding.harmless for finding in found), found
    said = " ".join(finding.what for finding in found)
    for what in (
        "no batch has the offsets",
        "replaced or deleted",
        "no partition's",
        "deleted partitions",
        "no log",
        "zeros",
    ):
        assert what in said


def test_records_that_do_not_fit_their_batch() -> None:
    content = dict(CLEAN)
    data = content[LOGS[0]]
    size = struct.unpack_from(">i", data, 8)[0] + 12
    body = bytearray(data[:size])
    body[61 + 3] = 8  # the offset delta of the first record
    content[LOGS[0]] = bytes(patched(body, ">q", 0, 0)) + data[size:]
    assert problems(content) == []
    assert "a record of offset 4 within" in problems(content, records=True)[0].what


def test_a_broken_index_is_not_told_entry_by_entry() -> None:
    content = dict(CLEAN)
    content[f"{STEM}.index"] = b"".join(struct.pack(">ii", 500 - at, 100) for at in range(100))
    assert MAX_PER_FILE <= len(problems(content)) <= MAX_PER_FILE + 1


def test_compaction_leaves_gaps() -> None:
    kept = [patched(batch(3), ">q", 0, 0), patched(batch(3), ">q", 0, 6)]
    content = {f"{FOLDER}/meta.properties": CLEAN[f"{FOLDER}/meta.properties"]}
    content |= {EPOCHS: b"0\n1\n0 0\n", f"{STEM}.index": b"", f"{STEM}.timeindex": struct.pack(">qi", NOW_MS, 2)}
    content[f"{STEM}.log"] = b"".join(put(bytes(data), ">i", 12, 0) for data in kept)
    assert verify(content) == []


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_changed_byte_of_a_batch_goes_unnoticed(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(LOGS))
    original = CLEAN[path]
    at = data.draw(st.integers(0, len(original) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != original[at]))
    content = dict(CLEAN)
    content[path] = original[:at] + bytes([value]) + original[at + 1 :]
    assert verify(content)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(CLEAN)), st.binary(max_size=60), st.integers(0, 4000))
def test_any_bytes_in_any_file(path: str, garbage: bytes, at: int) -> None:
    """With any content of a file, the check ends without an error of its own."""
    content = dict(CLEAN)
    content[path] = content[path][:at] + garbage + content[path][at + len(garbage) :]
    verify(content, records=True)


def started(content: dict[str, bytes]) -> dict[str, bytes]:
    """The files after a broker was started on them and stopped again."""
    files = MemoryFiles()
    for path, data in content.items():
        files.make_directory(path.rpartition("/")[0])
        files.create(path).write(data)
    loader = FolderLoader(
        files, PARTITION, LogIdentity("orders", 0, b"x" * 16), LogConfig.defaults(), LogCheckpoint(),
        producer_expiration_ms=10**15, now_ms=NOW_MS,
    )  # fmt: skip
    log = run_to_end(loader.load(clean=f"{FOLDER}/.kafka_cleanshutdown" in content))
    log.close(clean=True)
    after = {path: data for path, data in content.items() if not path.startswith(PARTITION)}
    after[f"{FOLDER}/recovery-point-offset-checkpoint"] = format_offsets({("orders", 0): log.log_end_offset})
    after[f"{FOLDER}/replication-offset-checkpoint"] = format_offsets({("orders", 0): log.log_end_offset})
    for entry in files.list_directory(PARTITION):
        after[f"{PARTITION}/{entry.name}"] = files.read_bytes(f"{PARTITION}/{entry.name}")
    return after


def run_to_end(steps: Generator[int, None, Log]) -> Log:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            log: Log = end.value
            return log


def marked_damaged(content: dict[str, bytes]) -> None:
    content[EPOCHS] = b"damaged\n"


def without_indexes(content: dict[str, bytes]) -> None:
    del content[f"{STEM}.index"], content[f"{STEM}.timeindex"]


def without_snapshot(content: dict[str, bytes]) -> None:
    del content[snapshot_of_the_end()], content[f"{FOLDER}/.kafka_cleanshutdown"]


def without_markers(content: dict[str, bytes]) -> None:
    del content[f"{FOLDER}/.kafka_cleanshutdown"], content[f"{FOLDER}/recovery-point-offset-checkpoint"]


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        (["leader epoch of a batch", "first batch of an epoch", "epochs file", "epochs order"], marked_damaged),
        (["epochs text", "no index", "snapshot checksum", "index size"], lambda content: None),
        (["index offset", "index position", "index order", "index beyond", "time", "last time"], without_indexes),
        (["snapshot contents"], without_snapshot),
        (["checksum", "record bytes", "magic", "length", "torn end", "stray end"], without_markers),
    ],
    ids=["epochs", "nothing to be done", "indexes", "producers", "batches"],
)
def test_the_remedies_help(names: list[str], remedy: Damage) -> None:
    for name in names:
        content = dict(CLEAN)
        ONE_WRONG[name][0](content)
        assert problems(content)
        remedy(content)
        assert problems(started(content)) == [], name
