"""How many Python functions of ours a request passes between the bytes that come in and the bytes that leave.

The shell is what a connection does around the handler: framing, decoding, dispatch, encoding, sending. Calls of the
handler, and the files of a fetched piece of a log, are not part of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

from gregor.broker.handlers.k00_produce import produce
from gregor.broker.handlers.k01_fetch import fetch
from gregor.protocol.messages import ProduceRequest
from tests.broker.harness import Harness, Wire, batch, fetch_request, produce_request, request_frame

ROOT = Path(__file__).parents[3]
VERSION = 12
MAX_SHELL_OF_PRODUCE = 12
MAX_SHELL_OF_FETCH = 14
MAX_OF_PRODUCE = 31
MAX_OF_FETCH = 72


class Hops(NamedTuple):
    shell: list[str]
    handler: list[str]
    files: list[str]

    @property
    def total(self) -> int:
        return sum(map(len, self))


def hops(wire: Wire, data: bytes, handler: CodeType) -> Hops:
    """Deliver a whole request; returns the functions of ours that were called, by name."""
    found = Hops([], [], [])
    inside = 0

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal inside
        code = frame.f_code
        if event == "return" and code is handler:
            inside -= 1
        if event != "call" or not is_ours(code.co_filename):
            return
        inside += code is handler
        if inside:
            found.handler.append(code.co_qualname)
        elif "/storage/" in code.co_filename:
            found.files.append(code.co_qualname)
        else:
            found.shell.append(code.co_qualname)

    view = wire.connection.get_buffer(65536)
    view[: len(data)] = data
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        wire.connection.buffer_updated(len(data))
    finally:
        sys.setprofile(before)
    assert wire.transport.written
    return found


def is_ours(file_name: str) -> bool:
    """A module of the product, or what it has generated (codecs, initialisers)."""
    return file_name.startswith("<") if not file_name.startswith("/") else is_module(Path(file_name))


def is_module(path: Path) -> bool:
    return path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "tests") and ".venv" not in path.parts


def general_produce(topic: str, *partitions: int) -> bytes:
    """A request that no route leads to, for it has several partitions."""
    data = [ProduceRequest.PartitionProduceData(index=index, records=batch(b"value")) for index in partitions]
    wanted = ProduceRequest.TopicProduceData(name=topic, partition_data=data)
    return request_frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[wanted]), VERSION)


@pytest.fixture
def wire(harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr("gregor.broker.handlers.k00_produce.TURN_S", 3600.0)
    harness.create_topic(topic, 2)
    for partition in (0, 1):
        harness.produce(topic, b"first", partition=partition)
    return Wire(harness)


def test_a_general_produce_request(wire: Wire, topic: str) -> None:
    wire.send(general_produce(topic, 0, 1))
    found = hops(wire, general_produce(topic, 0, 1), produce.__code__)
    assert len(found.shell) <= MAX_SHELL_OF_PRODUCE, found.shell
    assert found.files == []
    # The first version whose records are batches; its requests have no routes.
    frame = request_frame(produce_request(topic, batch(b"value")), 3)
    wire.send(frame)
    found = hops(wire, frame, produce.__code__)
    assert len(found.shell) <= MAX_SHELL_OF_PRODUCE, found.shell
    assert found.total <= MAX_OF_PRODUCE, found


def test_a_fetch(wire: Wire, topic: str) -> None:
    frame = request_frame(fetch_request([(topic, 0, 0)], max_wait_ms=0), VERSION)
    wire.send(frame)
    found = hops(wire, frame, fetch.__code__)
    assert len(found.shell) <= MAX_SHELL_OF_FETCH, found.shell
    assert found.total <= MAX_OF_FETCH, found


def test_the_usual_produce_request_has_six_frames(wire: Wire, topic: str) -> None:
    frame = request_frame(produce_request(topic, batch(b"value")), VERSION)
    wire.send(frame)
    found = hops(wire, frame, produce.__code__)
    assert found.handler == []
    assert found.shell == [
        "Connection.buffer_updated",
        "Receiver.requests",
        "ProduceRoutes.produce",
        "Partition.append",
    ]
    assert found.files == ["Appender.append_as_leader", "Appender._write"]
