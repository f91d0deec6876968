"""When objects are collected and when they are frozen; and connections that leave no cycles behind."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from gregor.broker.jobs.gc_policy import (
    MANY_BYTES,
    MANY_OBJECTS,
    TOO_MANY_OBJECTS,
    YOUNG_COLLECTIONS,
    YOUNG_OBJECTS,
    GcPolicy,
    most_new_objects,
    resident_bytes,
)
from gregor.broker.net.connection import Connection
from gregor.protocol.messages import ApiVersionsRequest, MetadataRequest
from tests.broker.harness import Wire, running


class Process:
    """The calls that the interpreter gets."""

    def __init__(self) -> None:
        self.resident_bytes = 100_000_000
        self.counts = (0, 0, 0)
        self.done: list[str] = []
        self.policy = GcPolicy(
            lambda: self.resident_bytes,
            lambda: self.done.append("collect"),
            lambda: self.done.append("freeze"),
            lambda: self.counts,
        )

    def after(self, new_objects: int, growth_bytes: int = 0) -> list[str]:
        self.resident_bytes += growth_bytes
        self.counts = (new_objects, 0, 0)
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


def test_few_new_objects_are_collected_and_many_that_stay_are_frozen(process: Process) -> None:
    assert process.after(0) == ["collect"]
    assert process.after(100, 10 * MANY_BYTES) == ["collect"], "buffers have grown, not objects"
    assert process.after(MANY_OBJECTS) == ["freeze"]
    assert process.after(MANY_OBJECTS + 1, MANY_BYTES) == ["collect"]
    assert process.after(1, 1) == ["freeze"], "in sum since the last time"
    assert process.after(MANY_OBJECTS) == ["collect"]


def test_objects_that_are_gone_again_are_not_frozen(process: Process) -> None:
    """A garbage cycle among them would stay for good."""
    for _ in range(20):
        assert process.after(5 * MANY_OBJECTS, 1000) == ["collect"]


def test_memory_that_is_freed_raises_no_limit(process: Process) -> None:
    assert process.after(0, -10 * MANY_BYTES) == ["collect"]
    assert process.after(MANY_OBJECTS + 1, MANY_BYTES + 1) == ["freeze"]


def test_objects_in_the_room_of_others_are_frozen_when_they_are_far_too_many(process: Process) -> None:
    assert process.after(TOO_MANY_OBJECTS) == ["collect"]
    assert process.after(TOO_MANY_OBJECTS + 1) == ["freeze"]


def test_the_memory_of_this_process_is_known() -> None:
    before = resident_bytes()
    if sys.platform == "linux":
        assert before > 10_000_000
    block = bytearray(b"x" * 32_000_000)
    if sys.platform == "linux":
        assert len(block) <= resident_bytes() - before + 4_000_000


def test_the_collector_makes_no_more_objects_than_it_says() -> None:
    """The bound by the collector's own counts is no less than the number that was made, and close to it."""
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
