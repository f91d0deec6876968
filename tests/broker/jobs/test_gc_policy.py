"""When garbage is collected and when all is set aside; and connections that leave no cycles behind."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from gregor.broker.jobs.gc_policy import MANY_BLOCKS, GcPolicy
from gregor.broker.net.connection import Connection
from gregor.protocol.messages import ApiVersionsRequest, MetadataRequest
from tests.broker.harness import Wire, running


class Process:
    """What the interpreter would do."""

    def __init__(self) -> None:
        self.blocks = 100_000
        self.done: list[str] = []
        self.garbage = GcPolicy(
            lambda: self.blocks, lambda: self.done.append("collect"), lambda: self.done.append("freeze")
        )

    def look(self, growth: int) -> list[str]:
        self.blocks += growth
        self.done.clear()
        self.garbage.look()
        return self.done


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    process = Process()
    process.garbage.begin()
    assert process.done == ["collect", "freeze"]
    return process


def test_little_is_collected_and_much_is_set_aside(process: Process) -> None:
    assert process.look(0) == ["collect"]
    assert process.look(MANY_BLOCKS // 2) == ["collect"]
    assert process.look(MANY_BLOCKS // 2 + 1) == ["freeze"]
    assert process.look(MANY_BLOCKS // 2) == ["collect"]


def test_what_goes_makes_no_room_for_more(process: Process) -> None:
    assert process.look(-80_000) == ["collect"]
    assert process.look(MANY_BLOCKS + 1) == ["freeze"]


@pytest.mark.parametrize("requests", [0, 1, 20])
def test_a_connection_that_ends_is_gone_without_a_collection(tmp_path: Path, requests: int) -> None:
    def connections() -> int:
        return sum(type(one) is Connection for one in gc.get_objects())

    with running(tmp_path) as harness:
        gc.collect()
        before = connections()
        gc.disable()
        try:
            for _ in range(5):
                wire = Wire(harness)
                for _ in range(requests):
                    assert wire.ask(ApiVersionsRequest(), 3) is not None
                    assert wire.ask(MetadataRequest(topics=None), 9) is not None
                wire.close()
                del wire
            assert connections() == before
        finally:
            gc.enable()
