"""The metrics in a push of a client."""

from __future__ import annotations

from gregor.broker.telemetry.otlp import Decoder, MalformedTelemetry
from gregor.protocol.turns import run_all
from tests.broker.telemetry.pushes import counter, gauge, point, push
from tests.fuzz.runner import Seed, Target

MAX_POINTS = 1000


def targets() -> list[Target]:
    return [Target("telemetry", decode, seeds, (MalformedTelemetry,), weight=8)]


def seeds() -> list[Seed]:
    some = push(gauge("org.a", point(1.5, {"topic": "t", "node": "1"})), counter("b.total", point(-3), delta=True))
    many = push(*(gauge(f"m{number}", *(point(number, {"n": str(n)}) for n in range(5))) for number in range(5)))
    return [(None, some), (None, many)]


def decode(_: None, data: bytes) -> None:
    assert len(run_all(Decoder(data, MAX_POINTS).points())) <= MAX_POINTS
