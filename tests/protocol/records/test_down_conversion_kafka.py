"""Apache Kafka 3.9.1, the last that converts down, as the judge: the same sets from the same batches."""

from __future__ import annotations

import os
import pathlib
import random
import struct
import subprocess

import pytest

from gregor.protocol.records.batch import LOG_APPEND_TIME, Record, build_batch, iter_batches
from gregor.protocol.records.compression import GZIP, LZ4, NONE, SNAPPY
from gregor.protocol.records.down_conversion import down_converting
from gregor.protocol.records.message_sets import iter_messages
from gregor.protocol.turns import run_all
from tests.support.kafka import java_command

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RELEASE = "3.9.1"
NOW = 1_600_000_000_000
PLENTY = 1 << 20
Case = tuple[int, int, int, bytes]
"""Codec, magic, first offset, batches."""


def some_bytes(chance: random.Random) -> bytes | None:
    return None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 1, 30, 700)))


def cases(count: int) -> list[Case]:
    chance = random.Random(11)
    made: list[Case] = []
    for number in range(count):
        codec, magic = (NONE, GZIP, SNAPPY, LZ4)[number % 4], number // 4 % 2
        start = offset = chance.randrange(10**6)
        data = bytearray()
        for _ in range(chance.randrange(1, 4)):
            records = []
            for _ in range(chance.randrange(1, 30)):
                stamp = chance.choice((-1, NOW, NOW + chance.randrange(10**6)))
                records.append(Record(offset, stamp, some_bytes(chance), some_bytes(chance), [("h", b"x")]))
                offset += chance.choice((1, 1, 1, 3))
            data += build_batch(
                records,
                compression=codec,
                timestamp_type=LOG_APPEND_TIME if chance.random() < 0.2 else 0,
                timestamp_ms=NOW,
                control=chance.random() < 0.1,
            )
        # A reader behind all records of a compressed batch receives the next ones; Apache Kafka sends the same again
        # and again.
        last_of_first = next(iter_batches(data)).last_offset
        made.append((codec, magic, min(start + chance.randrange(3), last_of_first), bytes(data)))
    return made


def converted_by_kafka(made: list[Case], folder: pathlib.Path) -> list[bytes]:
    command = java_command("DownConvert", version=RELEASE)
    place = command.index("-cp") + 1
    source = pathlib.Path(__file__).parent / "java/DownConvert.java"
    compiled = subprocess.run(
        ["javac", "-proc:none", "-cp", command[place], "-d", str(folder), str(source)], capture_output=True, text=True
    )
    assert compiled.returncode == 0, compiled.stderr
    command[place] += f"{os.pathsep}{folder}"
    asked = b"".join(struct.pack(">bqi", magic, first, len(data)) + data for _, magic, first, data in made)
    done = subprocess.run(command, input=asked, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    answers, position = [], 0
    while position < len(done.stdout):
        (size,) = struct.unpack_from(">i", done.stdout, position)
        answers.append(done.stdout[position + 4 : position + 4 + size])
        position += 4 + size
    return answers


def test_the_same_sets_as_kafka(tmp_path: pathlib.Path) -> None:
    made = cases(200)
    answers = converted_by_kafka(made, tmp_path)
    assert len(answers) == len(made)
    for (codec, magic, first_offset, data), theirs in zip(made, answers, strict=True):
        ours = run_all(down_converting(data, magic, first_offset, PLENTY)).message_set
        assert list(iter_messages(ours)) == list(iter_messages(theirs))
        if codec == NONE:
            assert ours == theirs
        elif ours:
            # Offset, magic, attributes and time of the first wrapper; only what the codec made of it may differ.
            assert (ours[:8], ours[16 : 26 if magic else 18]) == (theirs[:8], theirs[16 : 26 if magic else 18])
