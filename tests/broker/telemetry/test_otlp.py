"""gregor.broker.telemetry.otlp: numbers of OpenTelemetry's messages; what is broken is refused, what is unknown passed
over."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.broker.telemetry.otlp import FIELDS_PER_STEP, MAX_FIELDS, MAX_NAME, Decoder, MalformedTelemetry, Point
from gregor.protocol.turns import run_all
from tests.broker.telemetry.pushes import counter, field, gauge, number, point, push, varint


def decoded(data: bytes, max_points: int = 100) -> list[Point]:
    return run_all(Decoder(data, max_points).points())


def test_gauges_and_counters() -> None:
    data = push(
        gauge("a.b", point(1.5, {"topic": "t", "node": "1"}), point(-3)),
        counter("c.total", point(7)),
        counter("d.total", point(8), delta=True),
    )
    assert decoded(data) == [
        Point("a.b", (("node", "1"), ("topic", "t")), 1.5, False, False),
        Point("a.b", (), -3, False, False),
        Point("c.total", (), 7, True, False),
        Point("d.total", (), 8, True, True),
    ]


def test_fields_of_a_sum_may_stand_before_its_points() -> None:
    body = number(3, 1) + number(2, 1) + field(1, point(1))
    assert decoded(push(field(7, body) + field(1, "late"))) == [Point("late", (), 1, True, True)]


def test_values_of_attributes() -> None:
    values = field(1, "text"), number(2, 1), number(3, (1 << 64) - 5), varint(4 << 3 | 1) + struct.pack("<d", 0.5)
    attributes = b"".join(field(7, field(1, f"k{n}") + field(2, value)) for n, value in enumerate(values))
    (found,) = decoded(push(gauge("a", point(1) + attributes)))
    assert found.attributes == (("k0", "text"), ("k1", "true"), ("k2", "-5"), ("k3", "0.5"))


def test_histograms_and_unknown_fields_are_passed_over() -> None:
    histogram = field(1, "h") + field(9, field(1, bytes(20)))
    unknown = number(99, 5) + varint(98 << 3 | 5) + bytes(4) + varint(97 << 3 | 1) + bytes(8) + field(96, b"xyz")
    assert decoded(unknown + push(histogram + unknown, unknown + gauge("a", point(1) + unknown))) == [
        Point("a", (), 1, False, False)
    ]
    assert decoded(b"") == []


def test_points_beyond_the_limit_are_counted() -> None:
    decoder = Decoder(push(gauge("a", *(point(n) for n in range(10)))), 4)
    assert [one.value for one in run_all(decoder.points())] == [0, 1, 2, 3]
    assert decoder.left_out == 6


def test_long_names_are_cut() -> None:
    (found,) = decoded(push(gauge("ä" * 10_000, point(1))))
    assert found.name == "ä" * MAX_NAME


@pytest.mark.parametrize(
    "data",
    [
        varint(1 << 3 | 2) + varint(5) + b"abc",
        varint(1 << 3 | 3),
        b"\xff" * 11,
        b"\x80",
        varint(1 << 3 | 2) + varint(1 << 62),
        push(gauge("a", point(1) + b"".join(number(50, 1) for _ in range(300)))),
        push(gauge("a", point(1) + field(7, field(1, "k") + field(2, number(3, 1) * 300)))),
        push(gauge("a", point(1) + field(7, field(1, "k") + field(2, number(3, 1) * 60)) * 8)),
    ],
    ids=["too long", "group", "varint", "cut varint", "huge", "many fields", "attribute", "attributes"],
)
def test_broken_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedTelemetry):
        decoded(data)


def test_every_cut_of_a_push_is_refused_or_has_fewer_points() -> None:
    data = push(gauge("a.b", point(1.5, {"topic": "t"})), counter("c.total", point(7)))
    for size in range(1, len(data)):
        with pytest.raises(MalformedTelemetry):
            decoded(data[:size])


@pytest.mark.slow
def test_number_of_fields_is_limited_and_the_steps_are_short() -> None:
    steps = Decoder(push(gauge("a", point(1)) + number(50, 1) * (MAX_FIELDS + 1)), 10).points()
    count = 0
    with pytest.raises(MalformedTelemetry):
        while True:
            next(steps)
            count += 1
    assert count >= MAX_FIELDS // 64 - 1


# 6400 fields; in the last shapes each 64th is a message, whose own fields follow before the next one.
@pytest.mark.parametrize(
    "data",
    [
        number(50, 1) * 6400,
        field(1, number(50, 1) * 6400),
        push(number(50, 1) * 6400),
        push(field(5, b"") * 6400),
        field(1, number(50, 1) * 63) * 100,
        push(number(50, 1) * 63, *[number(50, 1) * 63] * 99),
        push(gauge("a", *[number(50, 1) * 63] * 100)),
    ],
    ids=["top", "resource", "metric", "gauges", "resources", "metrics", "points"],
)
def test_steps_are_short_at_each_level(data: bytes) -> None:
    fields = 0

    class Counted(Decoder):
        def _fields(self, begin: int, end: int) -> Iterator[Any]:
            nonlocal fields
            for one in super()._fields(begin, end):
                fields += 1
                yield one

    longest = before = 0
    for _ in Counted(data, 100).points():
        longest, before = max(longest, fields - before), fields
    assert fields >= 6400 and max(longest, fields - before) <= 2 * FIELDS_PER_STEP
