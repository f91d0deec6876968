"""When objects are collected and when they are frozen; and connections that leave no cycles behind."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from gregor.broker.jobs.gc_policy import MANY_BLOCKS, YOUNG_COLLECTIONS, YOUNG_OBJECTS, GcPolicy, most_new_objects
from gregor.broker.net.connection import Connection
from gregor.protocol.messages import ApiVersionsRequest, MetadataRequest
from tests.broker.harness import Wire, running


class Process:
    """The calls that the interpreter gets."""

    def __init__(self) -> None:
        self.blocks = 100_000
        self.done: list[str] = []
        self.measured = 0
        self.counts = (0, 0, 0)
        self.policy = GcPolicy(
            self.count_blocks,
            lambda: self.done.append("collect"),
            lambda: self.done.append("freeze"),
            lambda: self.counts,
        )

    def count_blocks(self) -> int:
        self.measured += 1
        return self.blocks

    def after(self, growth: int, counts: tuple[int, int, int] = (100, 1, 2)) -> list[str]:
        self.blocks += growth
        self.counts = counts
        self.done.clear()
        self.policy.collect()
        return self.done


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    process = Process()
    process.policy.begin()
    assert process.done == ["collect", "freeze"]
    return process


def test_few_new_objects_are_collected_and_many_are_frozen(process: Process) -> None:
    assert process.after(0) == ["collect"]
    assert process.after(MANY_BLOCKS // 2) == ["collect"]
    assert process.after(MANY_BLOCKS // 2 + 1) == ["freeze"]
    assert process.after(MANY_BLOCKS // 2) == ["collect"]


def test_objects_that_are_freed_raise_no_limit(process: Process) -> None:
    assert process.after(-80_000) == ["collect"]
    assert process.after(MANY_BLOCKS + 1) == ["freeze"]


def test_blocks_are_counted_when_there_may_be_many_new_objects(process: Process) -> None:
    process.measured = 0
    for _ in range(5):
        assert process.after(10, (3_000, 0, 0)) == ["collect"]
    assert process.measured == 0
    assert process.after(10, (3_000, 1, 0)) == ["collect"]
    assert process.measured == 1
    assert process.after(10, (3_000, 0, 0)) == ["collect"], "the count has shown that few are left"
    assert process.measured == 1
    assert process.after(MANY_BLOCKS, (3_000, 0, 2)) == ["freeze"]


def test_the_collector_makes_no_more_objects_than_it_says() -> None:
    """What `GcPolicy` derives from the collector's own counts is no less than what was made."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, 1_000_000)
    try:
        made: list[list[int]] = []
        for _ in range(9):
            made += [[] for _ in range(7_001)]
            assert len(made) <= most_new_objects(*gc.get_count()) < len(made) + 1000
    finally:
        gc.set_threshold(*thresholds)


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
