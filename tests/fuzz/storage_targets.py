"""Targets of the files of a data folder: indexes, checkpoints, snapshots, names, and whole folders of partitions."""

from __future__ import annotations

import struct
from functools import cache
from random import Random
from typing import Any

from crc32c import crc32c

from gregor.broker.cli.dump_log.indexes import dump_aborted, dump_index, dump_snapshot, dump_time_index
from gregor.broker.cli.errors import CommandError
from gregor.protocol.errors import KafkaError
from gregor.protocol.ids import uuid_to_text
from gregor.protocol.records.batch import CorruptBatch
from gregor.protocol.records.control import EndTransaction
from gregor.storage.folders.checkpoints import MalformedFile, format_offsets, parse_offsets
from gregor.storage.folders.identity import (
    MetaProperties,
    format_meta_properties,
    format_partition_metadata,
    parse_meta_properties,
    parse_partition_metadata,
)
from gregor.storage.folders.names import FolderKind, folder_name, marked_folder_name, parse_folder_name
from gregor.storage.log.contents import LogIdentity
from gregor.storage.log.epochs import LeaderEpochs, format_epochs, parse_epochs
from gregor.storage.producers.snapshot import format_snapshot, parse_snapshot
from gregor.storage.producers.state import ProducerStates
from gregor.storage.recovery.recovery import FolderLoader, LogCheckpoint
from gregor.storage.segment.index import OffsetIndex, TimeIndex
from gregor.storage.segment.segment import OldMessageFormat
from tests.fuzz.runner import Seed, Target
from tests.storage.logs import NOW_MS, append_marker, batch, log_config, open_log, sequenced
from tests.storage.memory_files import MemoryFiles

FOLDER = "/data/orders-0"
SEGMENT = "00000000000000000000"
BASE_OFFSET = 100
TOPIC_ID = bytes(range(16))


def targets() -> list[Target]:
    return [
        Target("offset indexes", read_offset_index, offset_index_seeds, (), weight=12),
        Target("time indexes", read_time_index, time_index_seeds, (), weight=12),
        Target("offset checkpoints", read_checkpoint, checkpoint_seeds, (MalformedFile,), weight=12, text=True),
        Target("leader epochs", read_epochs, epoch_seeds, (ValueError,), weight=12, text=True),
        Target("producer snapshots", read_snapshot, snapshot_seeds, (ValueError,), weight=12, mend=mend_snapshot),
        Target("meta.properties", read_meta, meta_seeds, (MalformedFile,), weight=12, text=True),
        Target("partition.metadata", read_metadata, metadata_seeds, (MalformedFile,), weight=8, text=True),
        Target("folder names", read_folder_name, folder_name_seeds, (), weight=8, text=True),
        Target("partition folders", load_folder, folder_seeds, (OldMessageFormat, KafkaError), weight=1),
        Target("dumps of files", dump_files, dump_seeds, (CommandError, CorruptBatch), weight=3, mend=mend_dump),
    ]


# -- indexes -----------------------------------------------------------------------------------------------------------


def offset_index_seeds() -> list[Seed]:
    random = Random(4718)
    seeds: list[Seed] = []
    for count in (0, 1, 2, 30, 300):
        entries = sorted(random.sample(range(1, 100_000), count))
        data = b"".join(struct.pack(">ii", entry, entry * 70) for entry in entries)
        seeds += [(None, data), (None, data + bytes(80))]
    return seeds


def time_index_seeds() -> list[Seed]:
    random = Random(4719)
    seeds: list[Seed] = []
    for count in (0, 1, 2, 30, 300):
        entries = sorted(random.sample(range(1, 100_000), count))
        data = b"".join(struct.pack(">qi", NOW_MS + entry, entry) for entry in entries)
        seeds += [(None, data), (None, data + bytes(120))]
    return seeds


def read_offset_index(context: None, data: bytes) -> None:
    """Check that for any contents lookups end, name a file position that is in the index, and appends follow behind
    it."""
    index = OffsetIndex(holding({"x.index": data}), f"{FOLDER}/x.index", BASE_OFFSET)
    count = index.entries
    assert 0 <= count <= len(data) // 8
    for offset in (0, BASE_OFFSET, BASE_OFFSET + 1, BASE_OFFSET + 5000, 2**62):
        index.lookup(offset)
        assert 0 <= index.entries_below_position(offset) <= count
    index.last()
    index.prepare_appends()
    index.append(BASE_OFFSET + 2**31 - 1, 2**31 - 1)
    index.write_pending()
    assert index.entries == count + 1 and index.last() == (BASE_OFFSET + 2**31 - 1, 2**31 - 1)
    index.truncate_entries(count // 2)
    assert index.file.size_bytes() == count // 2 * 8
    index.close()


def read_time_index(context: None, data: bytes) -> None:
    index = TimeIndex(holding({"x.timeindex": data}), f"{FOLDER}/x.timeindex", BASE_OFFSET)
    count = index.entries
    assert 0 <= count <= len(data) // 12
    for timestamp in (-1, 0, NOW_MS, NOW_MS + 5000, 2**62):
        index.lookup(timestamp)
        assert 0 <= index.entries_below_offset(timestamp) <= count
    last = index.last_timestamp
    index.prepare_appends()
    index.maybe_append(NOW_MS + 10**9, BASE_OFFSET + 7)
    index.write_pending()
    assert index.entries == count + (last < NOW_MS + 10**9)
    index.truncate_entries(count // 2)
    assert index.file.size_bytes() == count // 2 * 12
    index.close()


# -- checkpoints, identities, names ------------------------------------------------------------------------------------


def checkpoint_seeds() -> list[Seed]:
    some = {("orders", 0): 4711, ("orders", 1): 0, ("a.b-c_d", 2**31 - 1): 2**63 - 1}
    many = {("topic", partition): partition * 1000 for partition in range(50)}
    return [(None, format_offsets(offsets)) for offsets in ({}, some, many)] + [(None, b""), (None, b"0\n")]


def read_checkpoint(context: None, data: bytes) -> None:
    offsets = parse_offsets(data, "checkpoint")
    assert all(offset >= 0 and partition >= 0 for (_, partition), offset in offsets.items())
    if all(topic.isascii() for topic, _ in offsets):
        assert parse_offsets(format_offsets(offsets), "again") == offsets


def epoch_seeds() -> list[Seed]:
    lists: list[list[tuple[int, int]]] = [[], [(0, 0)], [(0, 0), (3, 4711), (2**31 - 1, 2**62)]]
    return [(None, format_epochs(entries)) for entries in lists] + [(None, b"")]


def read_epochs(context: None, data: bytes) -> None:
    files = holding({"leader-epoch-checkpoint": data})
    epochs = LeaderEpochs.load(files, FOLDER)
    for epoch in (-1, 0, 2, 2**31 - 1):
        epochs.end_offset_for(epoch, 5000)
    kept = epochs.entries()
    assert kept == sorted(kept) and [start for _, start in kept] == sorted(start for _, start in kept)
    epochs.truncate_from_end(4000)
    epochs.truncate_from_start(10)
    epochs.assign(5, 10_000)
    parse_epochs(data)


def snapshot_seeds() -> list[Seed]:
    log = open_log(MemoryFiles())
    snapshots = [format_snapshot([])]
    for producer_id in range(4):
        log.append_as_leader(sequenced(producer_id, 1, 2**31 - 2, 3), 0, NOW_MS)
        log.append_as_leader(sequenced(producer_id, 1, 1, transactional=producer_id == 2), 0, NOW_MS)
        snapshots.append(format_snapshot(log.producers.entries.values()))
    return [(None, data) for data in snapshots]


def mend_snapshot(context: Any, data: bytearray) -> None:
    if len(data) >= 10:
        data[2:6] = crc32c(memoryview(data)[6:]).to_bytes(4)


def read_snapshot(context: None, data: bytes) -> None:
    files = holding({"00000000000000000100.snapshot": data})
    states = ProducerStates(files, FOLDER, 1000)
    states.list_snapshots(["00000000000000000100.snapshot"])
    assert states.load(0, 200) in (0, 100)
    for entry in states.entries.values():
        for first in (-1, 0, entry.next_sequence):
            try:
                states.check(entry.producer_id, entry.epoch, first, first, 0, NOW_MS, (), from_client=True)
            except KafkaError:
                continue
    states.take_snapshot(150)
    parse_snapshot(data)


def meta_seeds() -> list[Seed]:
    metas = [
        MetaProperties(0, 0, "XoSDzFq8S1y5vX6Jkq2v6A"),
        MetaProperties(),
        MetaProperties(1, 5, "XoSDzFq8S1y5vX6Jkq2v6A", (("directory.id", "abc"), ("a key:", " = value\\"))),
    ]
    return [(None, format_meta_properties(meta, NOW_MS)) for meta in metas]


def read_meta(context: None, data: bytes) -> None:
    meta = parse_meta_properties(data, "meta.properties")
    try:
        written = format_meta_properties(meta, NOW_MS)
    except UnicodeEncodeError:
        return  # a \ud800 in it: its writer decides
    assert parse_meta_properties(written, "again") == meta


def metadata_seeds() -> list[Seed]:
    return [(None, format_partition_metadata(TOPIC_ID)), (None, format_partition_metadata(b"\xff" * 16) + b"\n")]


def read_metadata(context: None, data: bytes) -> None:
    topic_id = parse_partition_metadata(data, "partition.metadata")
    assert len(topic_id) == 16 and any(topic_id)
    assert parse_partition_metadata(format_partition_metadata(topic_id), "again") == topic_id, uuid_to_text(topic_id)


def folder_name_seeds() -> list[Seed]:
    names = [folder_name("orders", 0), folder_name("a.b-c_d", 2**31 - 1), folder_name("t" * 249, 10)]
    names += [marked_folder_name("a-b.c", 3, kind, TOPIC_ID) for kind in FolderKind if kind is not FolderKind.CURRENT]
    return [(None, name.encode()) for name in names]


def read_folder_name(context: None, data: bytes) -> None:
    name = data.decode(errors="surrogateescape")[:255]
    found = parse_folder_name(name)
    if found is not None:
        assert 0 <= found.partition < 2**31
        assert found.kind is not FolderKind.CURRENT or folder_name(found.topic, found.partition) == name


# -- whole folders -----------------------------------------------------------------------------------------------------


@cache
def good_folder() -> dict[str, bytes]:
    """The files of a partition with two segments, producers, three epochs, and transactions that are aborted and
    open."""
    files = MemoryFiles()
    log = open_log(files, FOLDER, segment_bytes=1500, index_interval_bytes=200)
    for number in range(24):
        data = sequenced(number % 3, 0, number // 6 * 2, 2) if number % 2 else batch(3, timestamp_ms=NOW_MS + number)
        log.append_as_leader(data, number // 8, NOW_MS)
    for producer_id in (10, 11, 12):
        log.append_as_leader(sequenced(producer_id, 0, 0, transactional=True), 2, NOW_MS)
    for producer_id in (11, 10):
        append_marker(log, EndTransaction(producer_id, 0, 3, commit=False), 2)
    log.close(True)
    return {entry.name: files.read_bytes(f"{FOLDER}/{entry.name}") for entry in files.list_directory(FOLDER)}


def folder_seeds() -> list[Seed]:
    """Each file alone is broken, before a clean start and before one after a crash."""
    return [((name, clean), data) for name, data in good_folder().items() for clean in (True, False)]


def load_folder(context: tuple[str, bool], data: bytes) -> None:
    """Check that the log is usable: it can be read from start to end, searched by time, and appended to."""
    name, clean = context
    files = holding({**good_folder(), name: data})
    loader = FolderLoader(
        files,
        FOLDER,
        LogIdentity("orders", 0, TOPIC_ID),
        log_config(segment_bytes=1500, index_interval_bytes=200),
        LogCheckpoint(),
        producer_expiration_ms=10**9,
        now_ms=NOW_MS,
    )
    steps = loader.load(clean)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            log = finished.value
            break
    offset = log.log_start_offset
    reads = 0
    while offset < log.log_end_offset and reads < 100:
        piece = log.read(offset, 10_000, log.log_end_offset)
        found = piece.read()
        piece.release()
        if len(found) < 61:
            break
        # A clean start trusts the batches, as Kafka does: only one after a crash has checked them.
        offset = struct.unpack_from(">q", found)[0] + struct.unpack_from(">i", found, 23)[0] + 1
        reads += 1
        if clean and offset <= log.log_start_offset:
            break
    end = log.log_end_offset
    log.offsets.restore_high_watermark(end)
    assert log.log_start_offset <= log.last_stable_offset <= end
    aborted = log.aborted_transactions(0, end)
    assert aborted == sorted(aborted, key=lambda one: one.first_offset)
    info = log.append_as_leader(batch(2), 9, NOW_MS)
    assert (info.first_offset, log.log_end_offset) == (end, end + 2)
    log.append_as_leader(sequenced(99, 0, 0, transactional=True), 9, NOW_MS)
    append_marker(log, EndTransaction(99, 0, 0, commit=False), 9)
    if not clean:  # a clean start trusts the transaction indexes, too
        assert [one[:3] for one in log.aborted_transactions(end, end + 3) if one[0] == 99] == [(99, end + 2, end + 3)]
        log.truncate_to(end, NOW_MS)
        assert all(one.last_offset < end for one in log.aborted_transactions(0, end))
    log.close(True)


# -- dumps -------------------------------------------------------------------------------------------------------------


def dump_seeds() -> list[Seed]:
    aborted = b"".join(struct.pack(">hqqqq", 0, producer_id, 1, 5, 6) for producer_id in range(3))
    seeds: list[Seed] = [(name, data) for name, data in good_folder().items() if not name.startswith("leader")]
    return [*seeds, (SEGMENT + ".txnindex", aborted), (SEGMENT + ".txnindex", b"")]


def mend_dump(name: str, data: bytearray) -> None:
    if name.endswith(".snapshot"):
        mend_snapshot(None, data)


def dump_files(name: str, data: bytes) -> None:
    files = holding({**good_folder(), name: data})
    stem, _, suffix = f"{FOLDER}/{name}".rpartition(".")
    written: list[str] = []
    if suffix == "snapshot":
        dump_snapshot(files, f"{FOLDER}/{name}", written.append)
    elif suffix == "txnindex":
        dump_aborted(files, f"{FOLDER}/{name}", written.append)
    else:
        dump_index(files, stem + ".index", False, False, 1 << 20, written.append)
        dump_time_index(files, stem + ".timeindex", False, False, written.append)


def holding(contents: dict[str, bytes]) -> MemoryFiles:
    """A folder with these files."""
    files = MemoryFiles()
    files.make_directory(FOLDER)
    for name, data in contents.items():
        files.write_atomically(f"{FOLDER}/{name}", data)
    return files
