"""Batches that are filled in, beside those that are built; and the fields by which bytes are recognised."""

from __future__ import annotations

import random
from collections.abc import Sequence
from struct import pack, pack_into

from gregor.protocol.records.batch import build_batch
from gregor.protocol.records.batch_template import BatchTemplate
from gregor.protocol.records.int64_fields import Int64Fields, int64_positions

INT64_MAX = 2**63 - 1


def build(numbers: Sequence[int], time_ms: int) -> bytearray:
    records = [(b"key %d" % index, pack(">hqq", 3, number, time_ms)) for index, number in enumerate(numbers)]
    return build_batch(records, timestamp_ms=time_ms)


def test_a_filled_batch_is_the_one_that_is_built() -> None:
    chance = random.Random(2)
    for count in (1, 2, 40):
        template = BatchTemplate.of(build, count)
        assert template is not None
        for _ in range(50):
            numbers = [chance.choice((0, -1, chance.randrange(INT64_MAX))) for _ in range(count)]
            time_ms = chance.randrange(2**42)
            batch = template.fill(numbers, time_ms)
            assert batch == build(numbers, time_ms)
            pack_into(">q", batch, 0, chance.randrange(2**40))  # as a log does


def test_there_is_no_template_where_other_bytes_depend_on_the_numbers() -> None:
    def longer(numbers: Sequence[int], time_ms: int) -> bytearray:
        return build_batch([(b"k", pack(">q", numbers[0]) + b"%d" % numbers[0])], timestamp_ms=time_ms)

    assert BatchTemplate.of(longer, 1) is None
    assert BatchTemplate.of(lambda _, time_ms: build([7], time_ms), 1) is None


def test_a_number_may_stand_at_several_positions() -> None:
    def encode(numbers: Sequence[int]) -> bytes:
        return b"ab" + pack(">qqq", numbers[0], numbers[1], numbers[0])

    assert int64_positions(encode, 2) == [(2, 18), (10,)]


def test_numbers_are_read_only_from_bytes_that_are_the_same_otherwise() -> None:
    data = b"x" + pack(">q", 5) + b"yz" + pack(">q", -6) + b"!"
    fields = Int64Fields(data, [1, 11])
    assert fields.numbers(data) == (5, -6)
    assert fields.numbers(b"x" + pack(">q", -1) + b"yz" + pack(">q", INT64_MAX) + b"!") == (-1, INT64_MAX)
    for position in (0, 9, 10, 19):
        other = bytearray(data)
        other[position] ^= 1
        assert fields.numbers(bytes(other)) is None, position
    assert fields.numbers(data + b"!") is None
    assert fields.numbers(data[:-1]) is None
