"""Transactions in a log beside Apache Kafka's own UnifiedLog: the same answers, the same transaction indexes, and each
loads the folder of the other, after a clean stop and after a crash."""

from __future__ import annotations

import pathlib
import random
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from gregor.protocol.errors import KafkaError
from gregor.protocol.records.batch import RecordBatch
from gregor.protocol.records.control import EndTransaction
from gregor.storage.fs.files import OsFiles
from gregor.storage.log.contents import LogIdentity
from gregor.storage.log.log import Log
from gregor.storage.producers.state import DEFAULT_EXPIRATION_MS
from gregor.storage.producers.transaction_checks import check_verified
from gregor.storage.producers.verification import OptionalGuard
from gregor.storage.recovery.recovery import FolderLoader, LogCheckpoint
from tests.storage.logs import append_marker, log_config, sequenced
from tests.storage.transaction_twin import index_entries
from tests.support.kafka import java_command

SEGMENT_BYTES = 1000
PRODUCERS = (1, 2, 3, 4)
STEPS = 250
NOW_MS = int(time.time() * 1000)
"""Apache Kafka's log has the clock of the machine: no producer expires, and no record is from the future."""


class Kafka:
    """Logs of Apache Kafka, one at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            java_command(str(pathlib.Path(__file__).with_name("TransactionLogs.java"))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, *words: object) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    found = Kafka()
    yield found
    assert found.process.stdin is not None
    found.process.stdin.close()
    found.process.wait(timeout=30)
    assert found.process.stdout is not None
    found.process.stdout.close()


class Ours:
    """The same commands on a log of this broker."""

    def open(self, folder: pathlib.Path, clean: bool) -> str:
        loader = FolderLoader(
            OsFiles(), str(folder), LogIdentity("orders", 0),
            log_config(segment_bytes=SEGMENT_BYTES, index_interval_bytes=100, retention_ms=-1), LogCheckpoint(),
            producer_expiration_ms=DEFAULT_EXPIRATION_MS, now_ms=NOW_MS,
        )  # fmt: skip
        steps = loader.load(clean)
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                self.log: Log = finished.value
                self.guards: dict[int, OptionalGuard] = {}
                return self.state()

    def verify(self, producer_id: int, epoch: int, sequence: int, new_protocol: bool) -> str:
        try:
            guard = self.log.producers.begin_verification(producer_id, epoch, sequence, new_protocol)
        except KafkaError as error:
            return error.code.name
        self.guards[producer_id] = guard
        return "open" if guard is None else "guard"

    def verifies(self, producer_id: int) -> bool:
        verifications = self.log.producers.verifications
        return verifications is not None and verifications.current(producer_id) is not None

    def append(self, batch: bytes) -> str:
        header = RecordBatch(batch)
        fields = header.producer_id, header.producer_epoch, header.base_sequence
        producers = self.log.producers
        try:
            if header.is_transactional:
                guard = self.guards.get(header.producer_id)
                check_verified(producers.entries.get(header.producer_id), producers.verifications, fields, guard)
            return str(self.log.append_as_leader(batch, 0, NOW_MS).first_offset)
        except KafkaError as error:
            return error.code.name

    def mark(self, marker: EndTransaction) -> str:
        try:
            return str(append_marker(self.log, marker, now_ms=NOW_MS).first_offset)
        except KafkaError as error:
            return error.code.name

    def state(self) -> str:
        log = self.log
        aborted = ",".join(":".join(map(str, one)) for one in index_entries(log))
        producers = ",".join(
            f"{one.producer_id}:{one.epoch}:{one.batches[-1][0] if one.batches else -1}:{one.coordinator_epoch}:"
            f"{one.transaction_first_offset}"
            for one in sorted(log.producers.entries.values(), key=lambda one: one.producer_id)
        )
        return f"{log.log_end_offset} {log.last_stable_offset} [{aborted}] [{producers}]"


class Pair:
    """The same log twice."""

    def __init__(self, seed: int, kafka: Kafka, folders: tuple[pathlib.Path, pathlib.Path]) -> None:
        self.random = random.Random(seed)
        self.kafka = kafka
        self.ours = Ours()
        self.folders = folders
        for folder in folders:
            folder.mkdir(parents=True)
        self.high_watermark = 0
        self.answers: list[str] = []
        self.open(clean=True)

    def open(self, *, clean: bool) -> None:
        ours = self.ours.open(self.folders[0], clean)
        theirs = self.kafka("open", self.folders[1], int(clean), SEGMENT_BYTES)
        self.high_watermark = self.ours.log.log_start_offset
        self.same(ours, theirs)

    def same(self, ours: str, theirs: str) -> None:
        self.answers.append(ours)
        assert ours == theirs, "\n".join(self.answers[-12:])

    def step(self) -> None:
        rng, log = self.random, self.ours.log
        producer_id = rng.choice(PRODUCERS)
        entry = log.producers.entries.get(producer_id)
        epoch, sequence = (0, 0) if entry is None else (entry.epoch, entry.next_sequence)
        chance = rng.random()
        if chance < 0.5:
            # Batches that are not transactional come from another producer, or break into a transaction.
            plain = rng.random() < 0.2 and (entry is None or entry.transaction_first_offset < 0)
            transactional = not plain and rng.random() < 0.9
            if plain:
                producer_id, epoch = 9, 0
                sequence = nine.next_sequence if (nine := log.producers.entries.get(9)) is not None else 0
            elif entry is None or entry.transaction_first_offset < 0 or self.ours.verifies(producer_id):
                transactional = True  # others are no rule of this broker while a verification is under way
            count, size = rng.choice([1, 1, 3]), rng.choice([1, 100])
            batch = bytes(
                sequenced(
                    producer_id, epoch, sequence, count, timestamp_ms=NOW_MS, transactional=transactional, size=size
                )
            )
            self.same(self.ours.append(batch), self.kafka("append", batch.hex(), producer_id))
        elif chance < 0.68:
            later = rng.choice([(0, sequence)] * 4 + [(0, sequence + 2), (1, 0)])
            wanted = producer_id, epoch + later[0], later[1], rng.random() < 0.5
            self.same(self.ours.verify(*wanted), self.kafka("verify", *wanted[:3], int(wanted[3])))
        elif chance < 0.8:
            version = rng.choice([0, 2])
            marker = EndTransaction(
                producer_id, epoch + rng.choice([0, 1, 1, -1] if epoch else [0, 1]),
                rng.choice([0, 1, 2] if len(self.answers) < 60 else [2, 3]), rng.random() < 0.4, version,
            )  # fmt: skip
            fields = (*marker[:3], int(marker.commit), version)
            self.same(self.ours.mark(marker), self.kafka("mark", *fields, NOW_MS))
        elif chance < 0.95:
            self.high_watermark = rng.randint(self.high_watermark, log.log_end_offset)
            log.offsets.restore_high_watermark(self.high_watermark)
            self.same(self.ours.state(), self.kafka("hw", self.high_watermark))
        elif log.segments[-1].size_bytes:
            log.roll(NOW_MS)
            self.same(self.ours.state(), self.kafka("roll"))

    def indexes(self) -> list[dict[str, bytes]]:
        return [
            {path.name: path.read_bytes() for path in folder.glob("*.txnindex") if path.stat().st_size}
            for folder in self.folders
        ]


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_both_do_the_same(seed: int, kafka: Kafka, tmp_path: pathlib.Path) -> None:
    pair = Pair(seed, kafka, (tmp_path / "ours" / "orders-0", tmp_path / "kafka" / "orders-0"))
    for _ in range(STEPS):
        pair.step()
    end = pair.ours.log.log_end_offset
    pair.ours.log.offsets.restore_high_watermark(end)
    pair.same(pair.ours.state(), kafka("hw", end))
    pair.ours.log.close(clean=True)
    kafka("close")
    written = pair.indexes()
    # Apache Kafka rolls a segment also for a batch that it then refuses.
    ours, theirs = (b"".join(found[name] for name in sorted(found)) for found in written)
    assert ours == theirs
    names = {answer for answer in pair.answers if answer.isupper()}
    assert len(ours) >= 34
    assert names <= {
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "INVALID_TXN_STATE",
        "INVALID_PRODUCER_EPOCH",
        "TRANSACTION_COORDINATOR_FENCED",
    }
    last = pair.answers[-1]

    # Each loads the folder of the other, then after a crash that has lost all but the batches.
    pair.folders = pair.folders[1], pair.folders[0]
    written.reverse()
    for clean in (True, False):
        if not clean:
            for folder in pair.folders:
                for path in [*folder.glob("*.txnindex"), *folder.glob("*.snapshot")]:
                    path.unlink()
        pair.open(clean=clean)
        pair.ours.log.offsets.restore_high_watermark(end)
        pair.same(pair.ours.state(), kafka("hw", end))
        assert pair.answers[-1] == last
        pair.ours.log.close(clean=True)
        kafka("close")
        assert pair.indexes() == written
    shutil.rmtree(tmp_path)
