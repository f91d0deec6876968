"""How many hops a request has, and that the pages of its journey list them.

A hop is a call of a Python function of gregor's, generated ones included, by the shell: by what a connection does
around the handler, which is framing, decoding, dispatch, encoding, sending. Calls of the handler, and the files of a
fetched piece of a log, are no hops; a second limit counts them together with the hops.
"""

from __future__ import annotations

import re
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
GENERATED = "(generated)"
JOURNEYS = ROOT / "docs" / "architecture"
VERSION = 12
MAX_SHELL_OF_PRODUCE = 12
MAX_SHELL_OF_FETCH = 14
MAX_OF_PRODUCE = 31
MAX_OF_FETCH = 72


class Called(NamedTuple):
    depth: int
    name: str
    path: str


class Hops(NamedTuple):
    shell: list[Called]
    handler: list[Called]
    files: list[Called]
    every: list[Called]


def hops(wire: Wire, data: bytes, handler: CodeType) -> Hops:
    """Deliver a whole request; returns the functions of ours that were called."""
    found = Hops([], [], [], [])
    inside = 0

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal inside
        code = frame.f_code
        if event == "return" and code is handler:
            inside -= 1
        if event != "call" or not is_ours(code.co_filename):
            return
        inside += code is handler
        one = called(frame)
        found.every.append(one)
        if inside:
            found.handler.append(one)
        elif "/storage/" in code.co_filename:
            found.files.append(one)
        else:
            found.shell.append(one)

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


def called(frame: FrameType) -> Called:
    """Describe a call of ours. A generated initialiser is named by its class: its own name depends on the Python."""
    code = frame.f_code
    depth, caller = 0, frame.f_back
    while caller is not None and caller.f_code is not hops.__code__:
        depth += is_ours(caller.f_code.co_filename)
        caller = caller.f_back
    name = code.co_qualname
    if "<locals>" in name and "self" in frame.f_locals:
        name = f"{type(frame.f_locals['self']).__name__}.{code.co_name}"
    path = Path(code.co_filename)
    generated = code.co_filename.startswith("<")
    return Called(depth, name, GENERATED if generated else str(path.resolve().relative_to(ROOT)))


def names(calls: list[Called]) -> list[str]:
    return [one.name for one in calls]


def listed(page: str) -> tuple[list[Called], list[Called]]:
    """Return the functions of the last list of a page, all and those with a number, the hops. A function without a
    file is in the file of the one before."""
    block = re.findall(r"^```text\n(.*?)^```", (JOURNEYS / page).read_text(), re.MULTILINE | re.DOTALL)[-1]
    every: list[Called] = []
    numbered: list[Called] = []
    for line in block.splitlines():
        number, rest = line[:2].strip(), line[3:]
        name, *path = rest.split()
        one = Called((len(rest) - len(rest.lstrip())) // 2, name, path[0] if path else every[-1].path)
        every.append(one)
        if number:
            numbered.append(one)
            assert int(number) == len(numbered), line
    return every, numbered


def check_page(page: str, found: Hops, max_hops: int, max_calls: int) -> None:
    """The numbered functions of the page are the hops; the other ones are some of the calls, in their order."""
    every, numbered = listed(page)
    assert numbered == found.shell
    calls = iter(found.every)
    assert [one for one in every if one not in calls] == []
    limits = f"at most {max_hops} hops, and at most {max_calls} calls"
    assert limits in " ".join((JOURNEYS / page).read_text().split())


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
        harness.produce(topic, bytes(200), partition=partition)  # its size in a response is a varint of two bytes
    return Wire(harness)


def test_a_general_produce_request(wire: Wire, topic: str) -> None:
    wire.send(general_produce(topic, 0, 1))
    found = hops(wire, general_produce(topic, 0, 1), produce.__code__)
    assert len(found.shell) <= MAX_SHELL_OF_PRODUCE, names(found.shell)
    assert found.files == []
    # The first version whose records are batches; its requests have no routes.
    frame = request_frame(produce_request(topic, batch(b"value")), 3)
    wire.send(frame)
    found = hops(wire, frame, produce.__code__)
    assert len(found.shell) <= MAX_SHELL_OF_PRODUCE, names(found.shell)
    assert len(found.every) <= MAX_OF_PRODUCE, names(found.every)
    check_page("produce.md", found, MAX_SHELL_OF_PRODUCE, MAX_OF_PRODUCE)


def test_a_fetch(wire: Wire, topic: str) -> None:
    frame = request_frame(fetch_request([(topic, 0, 0)], max_wait_ms=0), VERSION)
    wire.send(frame)
    found = hops(wire, frame, fetch.__code__)
    assert len(found.shell) <= MAX_SHELL_OF_FETCH, names(found.shell)
    assert len(found.every) <= MAX_OF_FETCH, names(found.every)
    check_page("fetch.md", found, MAX_SHELL_OF_FETCH, MAX_OF_FETCH)


def test_the_usual_produce_request_has_six_frames(wire: Wire, topic: str) -> None:
    frame = request_frame(produce_request(topic, batch(b"value")), VERSION)
    wire.send(frame)
    found = hops(wire, frame, produce.__code__)
    assert found.handler == []
    assert names(found.shell) == [
        "Connection.buffer_updated",
        "Receiver.requests",
        "ProduceRoutes.produce",
        "Partition.append",
    ]
    assert names(found.files) == ["Appender.append_as_leader", "Appender._write"]
