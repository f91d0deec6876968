"""Orders as a broker carries them out, without their socket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.admin_socket.address import SOCKET_NAME, connect, listen, unlink
from gregor.broker.admin_socket.server import OrderRefused
from tests.broker.harness import Harness, running


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with running(tmp_path_factory.mktemp("control")) as started:
        small = {"internal_segment_bytes": "500"}
        started.create_topic("table", 2, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0", **small)
        started.create_topic("events", retention_bytes="1000", **small)
        yield started


def answers(harness: Harness, **order: Any) -> list[dict[str, Any]]:
    async def carry_out() -> list[dict[str, Any]]:
        return [answer async for answer in harness.node.control.carry_out(order)]

    return harness.run(carry_out())


def refusal(harness: Harness, **order: Any) -> str:
    with pytest.raises(OrderRefused) as refused:
        answers(harness, **order)
    return str(refused.value)


@pytest.mark.slow
def test_compact(harness: Harness) -> None:
    for number in range(20):
        harness.produce("table", (b"key-%d" % (number % 3), b"%d" % number))  # type: ignore[arg-type]
    first, second = answers(harness, command="compact", topic="table")
    assert first["done"]
    assert (first["records_before"], first["records_after"], first["cleaned_offset"]) == (20, 3, 20)
    assert (second["partition"], second["done"]) == (1, False)
    assert second["reason"].startswith("nothing to compact")
    assert answers(harness, command="compact", topic="table", partition=1) == [second]


def test_compact_without_a_roll_leaves_the_active_segment(harness: Harness) -> None:
    harness.produce("table", (b"key", b"1"), partition=1)  # type: ignore[arg-type]
    (answer,) = answers(harness, command="compact", topic="table", partition=1, roll=False)
    assert not answer["done"]
    assert harness.broker.logs.logs["table", 1].segments_count == 1


def test_retention(harness: Harness) -> None:
    assert answers(harness, command="retention", topic="events")[0]["removed_segments"] == 0
    for _ in range(10):
        harness.produce("events", bytes(300))
    explained = answers(harness, command="retention", topic="events", explain=True)
    assert explained[0]["when"].startswith("in at most")
    assert explained[0]["segments"] == 10
    (answer,) = answers(harness, command="retention", topic="events")
    assert answer["done"]
    assert answer["removed_segments"] == 7
    assert answer["log_start_offset"] == 7
    log = harness.broker.logs.logs["events", 0]
    log.work.begin_cleaning()
    try:
        assert not answers(harness, command="retention", topic="events")[0]["done"]
    finally:
        log.work.end_cleaning()


def test_clients(harness: Harness) -> None:
    for _ in range(3):
        harness.produce("events", b"value")
    log = harness.broker.logs.logs["events", 0]
    offset = log.high_watermark - 2
    harness.fetch("events", offset)
    (answer,) = answers(harness, command="clients")
    assert answer.pop("lag_s") >= 0
    assert answer == {"client_id": "tests", "topic": "events", "partition": 0, "offset": offset, "lag": 2}


def test_explained_for_all_topics_or_one(harness: Harness) -> None:
    everything = answers(harness, command="compact", explain=True)
    assert [(one["topic"], one["partition"]) for one in everything] == [("table", 0), ("table", 1)]
    assert {"when", "why", "ratio", "threshold", "dirty_bytes", "clean_bytes"} <= everything[0].keys()
    assert {one["topic"] for one in answers(harness, command="retention", explain=True)} == {"table", "events"}
    assert len(answers(harness, command="compact", topic="table", partition=0, explain=True)) == 1


def test_a_partition_whose_topic_is_not_known_is_left_alone(harness: Harness) -> None:
    """Its log has the broker's default settings, and not its topic's."""
    logs, replicas = harness.broker.logs.logs, harness.broker.replicas
    harness.create_topic("late", 2, cleanup_policy="compact", retention_bytes="0", internal_segment_bytes="500")
    for number in range(10):
        harness.produce("late", (b"key", b"%d" % number * 100), partition=1)  # type: ignore[arg-type]
    assigned = replicas.partitions["late", 1]
    del replicas.partitions["late", 1]
    segments = logs["late", 1].segments
    try:
        for command in ("compact", "retention"):
            unserved, served = answers(harness, command=command, topic="late")
            assert (unserved["partition"], unserved["done"], served["partition"]) == (1, False, 0)
            assert unserved["reason"].startswith("the broker does not know the topic's settings yet")
            (explained,) = answers(harness, command=command, topic="late", partition=1, explain=True)
            assert (explained["when"], explained["why"]) == ("unknown", unserved["reason"])
        assert logs["late", 1].segments == segments
        everything = answers(harness, command="compact", explain=True)
        assert ("late", 1) not in [(one["topic"], one["partition"]) for one in everything]
        result = harness.run(harness.node.cleaner.compact_now(logs["late", 1]))
        assert (result.cleaned, result.reason) == (False, "the settings of its topic are not known yet")
    finally:
        replicas.partitions["late", 1] = assigned


def test_what_makes_no_sense_is_refused(harness: Harness) -> None:
    assert "name the topic" in refusal(harness, command="compact")
    assert "'events' is not compacted: its cleanup.policy is delete" in refusal(
        harness, command="compact", topic="events"
    )
    assert "gregor topics --list" in refusal(harness, command="retention", topic="nobody")
    assert "no partition 7" in refusal(harness, command="retention", topic="events", partition=7)
    assert "of the same version" in refusal(harness, command="explode")
    assert "of the same version" in refusal(harness)


@pytest.mark.parametrize("depth", [1, 30])
def test_a_socket_in_any_folder(tmp_path: Path, depth: int) -> None:
    """The socket works also where the path is longer than a socket's address may be."""
    folder = tmp_path.joinpath(*["folder"] * depth)
    folder.mkdir(parents=True)
    (folder / SOCKET_NAME).touch()  # left by a killed broker
    listening = listen(str(folder))
    try:
        assert (folder / SOCKET_NAME).stat().st_mode & 0o777 == 0o600
        connected = connect(str(folder))
        accepted, _ = listening.accept()
        connected.close()
        accepted.close()
    finally:
        listening.close()
    with pytest.raises(ConnectionRefusedError):
        connect(str(folder))
    unlink(str(folder))
    unlink(str(folder))
    with pytest.raises(FileNotFoundError):
        connect(str(folder))
    assert os.listdir(folder) == []
