"""`gregor dump-log` prints the same lines as Apache Kafka's own tool for the same files."""

from __future__ import annotations

import re
import struct
from binascii import crc32
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gregor.broker.cli.dump_log import command as dump_log
from gregor.coordinator.group.records import encode_record
from gregor.coordinator.result import Record as GroupRecord
from gregor.protocol import messages
from gregor.protocol.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
)
from gregor.protocol.records.batch import DELETE_HORIZON_BIT, Record, build_batch
from gregor.protocol.records.compression import compress
from gregor.storage.producers.state import ProducerEntry, format_snapshot
from tests.protocol.message_values import random_message
from tests.storage.logs import NOW_MS, batch, patched
from tests.storage.test_dump_log import DUMP, FALSE_ALARM, write_log
from tests.support.kafka_tools import KafkaTools

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


class Both:
    """Runs both tools. The output of Apache Kafka's tool is the standard, except where it is wrong."""

    def __init__(self, kafka: KafkaTools, capsys: pytest.CaptureFixture[str]) -> None:
        self._kafka = kafka
        self._capsys = capsys

    def same(self, *arguments: str, code: int = 0) -> str:
        said = self._kafka.run(DUMP, *arguments)
        assert said.code == 0, said.err
        self._capsys.readouterr()
        assert dump_log.main(arguments) == code
        ours = self._capsys.readouterr()
        assert ours.out.splitlines() == said.out.splitlines()
        assert sorted(ours.err.splitlines()) == sorted(FALSE_ALARM.sub("", said.err).splitlines())
        return ours.out


@pytest.fixture
def both(kafka: KafkaTools, capsys: pytest.CaptureFixture[str]) -> Both:
    return Both(kafka, capsys)


def files_of(directory: Path, *suffixes: str) -> str:
    return ",".join(sorted(str(path) for path in directory.iterdir() if path.suffix in suffixes))


def test_a_log_with_its_indexes(tmp_path: Path, both: Both) -> None:
    directory = tmp_path / "orders-0"
    write_log(directory, restart_after=61)
    logs = files_of(directory, ".log")
    assert both.same("--files", logs).count("baseOffset: ") == 120
    assert both.same("--files", logs, "--deep-iteration").count("| offset: ") > 120
    assert "payload: v" in both.same("--files", logs, "--print-data-log")
    both.same("--files", logs, "--print-data-log", "--skip-record-metadata")
    both.same("--files", logs, "--print-data-log", "--max-bytes", "5000")
    indexes = files_of(directory, ".index", ".timeindex")
    assert "position: " in both.same("--files", indexes)
    both.same("--files", indexes, "--verify-index-only")
    assert "passed sanity check" in both.same("--files", indexes, "--index-sanity-check")
    assert "producerId: 4711" in both.same("--files", files_of(directory, ".snapshot"))


def test_indexes_that_are_wrong(tmp_path: Path, both: Both) -> None:
    directory = tmp_path / "orders-0"
    write_log(directory)
    stem = directory / f"{0:020d}"
    index, time_index = stem.with_suffix(".index"), stem.with_suffix(".timeindex")
    data = bytearray(index.read_bytes())
    struct.pack_into(">i", data, 0, struct.unpack_from(">i", data)[0] + 1)
    index.write_bytes(data + bytes(16))  # as Apache Kafka leaves it in a crash
    times = bytearray(time_index.read_bytes())
    struct.pack_into(">q", times, 12, 5)
    time_index.write_bytes(times)
    for flags in ((), ("--verify-index-only",)):
        both.same("--files", str(index), *flags, code=1)
        both.same("--files", str(time_index), *flags, code=1)


def test_damage_and_gaps(tmp_path: Path, both: Both) -> None:
    log = tmp_path / f"{0:020d}.log"
    whole = batch(2) + batch(1, base_offset=2)
    wrong = patched(batch(1, base_offset=9), ">I", 17, 7)
    log.write_bytes(bytes(whole + wrong + batch(1, base_offset=10)[:40]))
    out = both.same("--files", str(log), "--deep-iteration", code=1)
    assert "isvalid: false" in out and "Found 40 invalid bytes" in out
    empty = tmp_path / f"{7:020d}.log"
    empty.write_bytes(b"")
    both.same("--files", f"{empty},{tmp_path / 'notes.txt'}")


NO_UTF8 = [
    *(b"\xed\xa0\x80.", b"\xed\xa0.", b"\xed\xbf", b"\xed\x9f.", b"\xe0\x80.", b"\xe2\x82", b"\xe2\x82\xe2."),
    *(
        b"\xf0\x80\x80.",
        b"\xf0\x90\x80",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xc0\xaf",
        b"\xc3",
        b"\x80\xff",
    ),
]


def test_markers_and_rare_fields(tmp_path: Path, both: Both) -> None:
    """Markers of transactions, a delete horizon, append time, sequences that wrap, names that are no ASCII."""
    marker = Record(3, NOW_MS, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 42), [])
    abort = marker._replace(offset=4, key=struct.pack(">hh", 0, 0))
    horizon = batch(1, base_offset=5)
    batches = [
        batch(3, producer_id=7, producer_epoch=2, base_sequence=2**31 - 2, transactional=True),
        build_batch([marker], producer_id=7, producer_epoch=2, transactional=True, control=True),
        build_batch([abort], producer_id=7, producer_epoch=2, transactional=True, control=True),
        patched(horizon, ">h", 21, DELETE_HORIZON_BIT),
        build_batch([Record(6, NOW_MS, b"\xff", "é".encode(), [("ä", b""), ("b", None)])]),
        batch(2, base_offset=7, timestamp_type=1),
        batch(1, base_offset=20),
        build_batch([Record(21, NOW_MS, None, b"no key", []), Record(22, NOW_MS, None, None, [])]),
        build_batch([Record(23 + at, NOW_MS, None, value, []) for at, value in enumerate(NO_UTF8)]),
    ]
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(b"".join(map(bytes, batches)))
    out = both.same("--files", str(log), "--print-data-log")
    assert "endTxnMarker: COMMIT coordinatorEpoch: 42" in out and f"OptionalLong[{NOW_MS}]" in out
    both.same("--files", str(log), "--print-data-log", "--skip-record-metadata")


def message(offset: int, magic: int, key: bytes | None, value: bytes | None, attributes: int = 0) -> bytes:
    body = bytes([magic, attributes]) + (struct.pack(">q", NOW_MS + offset) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def test_old_formats(tmp_path: Path, both: Both) -> None:
    """Logs of before 0.11 hold messages, alone or wrapped in a compressed one."""
    inner = b"".join(message(at, 1, b"k", b"v%d" % at) for at in range(3))
    parts = [
        message(0, 0, None, b"zero"),
        message(1, 1, b"key", None),
        message(4, 1, None, compress(1, inner), attributes=1),
        message(5, 1, None, b"stamped", attributes=8),
    ]
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(b"".join(parts))
    assert both.same("--files", str(log), "--print-data-log").count("| offset: ") == 6


def test_the_offsets_topic(tmp_path: Path, both: Both) -> None:
    subscription = b"\0\3" + b"\0\0\0\1\0\6orders" + b"\xff\xff\xff\xff" + b"\0\0\0\1\0\6orders\0\0\0\2\0\0\0\0\0\0\0\1"
    subscription += b"\0\0\0\5" + b"\xff\xff"
    assignment = b"\0\3" + b"\0\0\0\1\0\6orders\0\0\0\1\0\0\0\0" + b"\0\0\0\2ab"
    member = GroupMetadataValue.MemberMetadata(
        member_id="m-1", group_instance_id="static", client_id="c", client_host="/127.0.0.1", rebalance_timeout=300,
        session_timeout=45, subscription=subscription, assignment=assignment,
    )  # fmt: skip
    group = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m-1", current_state_timestamp=NOW_MS,
        members=[member],
    )  # fmt: skip
    key = OffsetCommitKey(group="g", topic="orders", partition=1)
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata='say "é"', commit_timestamp=NOW_MS)
    records = [
        GroupRecord(key, value),
        GroupRecord(key, OffsetCommitValue(offset=6, metadata="", commit_timestamp=NOW_MS, expire_timestamp=9)),
        GroupRecord(key, None),
        GroupRecord(GroupMetadataKey(group="g"), group),
        GroupRecord(GroupMetadataKey(group="g"), GroupMetadataValue(protocol_type="connect", members=[member])),
        GroupRecord(GroupMetadataKey(group="g"), GroupMetadataValue(protocol=None, leader=None)),
        GroupRecord(GroupMetadataKey(group="g"), None),
    ]
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(bytes(build_batch([encode_record(record) for record in records], timestamp_ms=NOW_MS)))
    out = both.same("--files", str(log), "--offsets-decoder")
    assert '"ownedPartitions":[{"topic":"orders","partitions":[0,1]}]' in out
    assert re.search(r"payload: <DELETE>$", out, re.MULTILINE)


def test_groups_of_the_consumer_protocol(tmp_path: Path, both: Both) -> None:
    """Every kind of record that such a group has, with ordinary and with extreme values."""
    random = Random(848)
    values = [name for name, file in messages.OTHERS.items() if file == "records_consumer_group" and "Value" in name]
    records = [
        GroupRecord(
            random_message(random, name.replace("Value", "Key"), 0),
            random.choice([None, *[random_message(random, name, 0) for _ in range(7)]]),
        )
        for name in values
        for _ in range(12)
    ]
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(bytes(build_batch([encode_record(record) for record in records], timestamp_ms=NOW_MS)))
    out = both.same("--files", str(log), "--offsets-decoder")
    assert out.count('"groupId":') == len(records) == 84
    assert "<DELETE>" in out and '"assignmentEpochs":[' in out and '"classicMemberMetadata":' in out


def test_the_transaction_topic(tmp_path: Path, both: Both) -> None:
    orders = TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[0, 7])
    key = b"\0\0" + TransactionLogKey(transactional_id='bill "é"').encode(0)
    state = {"producer_id": 4711, "producer_epoch": 3, "transaction_timeout_ms": 60_000, "transaction_status": 1}
    times = {"transaction_last_update_timestamp_ms": NOW_MS, "transaction_start_timestamp_ms": NOW_MS - 5}
    tagged = {"previous_producer_id": 4710, "next_producer_id": 4712, "next_producer_epoch": 0}
    values = [
        b"\0\0" + TransactionLogValue(**state, **times, transaction_partitions=[orders]).encode(0),
        b"\0\0" + TransactionLogValue(**state, transaction_partitions=None).encode(0),
        b"\0\1" + TransactionLogValue(**state, **times, transaction_partitions=[orders]).encode(1),
        b"\0\1"
        + TransactionLogValue(**state, **tagged, transaction_partitions=[], client_transaction_version=2).encode(1),
        None,
    ]
    log = tmp_path / f"{0:020d}.log"
    records = [*((key, value) for value in values), (b"\0\5other", b"")]
    log.write_bytes(bytes(build_batch(records, timestamp_ms=NOW_MS)))
    out = both.same("--files", str(log), "--transaction-log-decoder")
    assert '"transactionPartitions":[{"topic":"orders","partitionIds":[0,7]}]' in out
    assert re.search(r"payload: <DELETE>$", out, re.MULTILINE) and "Unknown record type 5" in out


def test_transactional_offsets(tmp_path: Path, both: Both) -> None:
    """Offsets of a transaction, and its marker, which is shown without a key."""
    key = OffsetCommitKey(group="g", topic="orders", partition=1)
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="", commit_timestamp=NOW_MS)
    offsets = build_batch(
        [encode_record(GroupRecord(key, value))],
        timestamp_ms=NOW_MS, producer_id=7, producer_epoch=2, transactional=True,
    )  # fmt: skip
    marker = Record(1, NOW_MS, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 42), [])
    ended = build_batch([marker], producer_id=7, producer_epoch=2, transactional=True, control=True)
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(bytes(offsets) + bytes(ended))
    out = both.same("--files", str(log), "--offsets-decoder")
    assert "isTransactional: true" in out and "endTxnMarker: COMMIT coordinatorEpoch: 42" in out


def test_the_files_of_transactions_beside_a_log(tmp_path: Path, both: Both) -> None:
    """The index of aborted transactions, and producers with an open transaction or without a batch."""
    index = tmp_path / f"{0:020d}.txnindex"
    index.write_bytes(struct.pack(">hqqqq", 0, 7, 1, 4, 3) + struct.pack(">hqqqq", 0, 8, 2, 9, 2**40))
    assert both.same("--files", str(index)).count("lastStableOffset: ") == 2
    index.write_bytes(b"")
    both.same("--files", str(index))
    ended, running = ProducerEntry(7, 3), ProducerEntry(8, 0)
    ended.coordinator_epoch, ended.last_timestamp = 42, NOW_MS
    running.add(0, (3, 9, 3, NOW_MS))
    running.transaction_first_offset = 6
    snapshot = tmp_path / f"{10:020d}.snapshot"
    snapshot.write_bytes(format_snapshot([ended, running]))
    out = both.same("--files", str(snapshot))
    assert "coordinatorEpoch: 42 currentTxnFirstOffset: OptionalLong.empty" in out and "OptionalLong[6]" in out
