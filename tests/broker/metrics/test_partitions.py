"""The lines of partitions that are kept from scrape to scrape are those of a view that makes all of them anew."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.metrics.page import Page
from gregor.broker.metrics.partitions import PartitionLines
from gregor.broker.metrics.table import FAMILIES
from gregor.protocol.turns import WalkableDict, run_all
from gregor.replication.partition.replica_manager import ReplicaManager
from tests.broker.harness import batch, running
from tests.replication.replicas import NOW, leader_of, state
from tests.storage.logs import open_log
from tests.storage.memory_files import MemoryFiles

PARTITIONS = 150
"""More than two blocks."""


def shown(lines: PartitionLines) -> tuple[bytes, dict[str, int]]:
    page = Page(FAMILIES)
    figures = run_all(lines.collect(page))
    return b"".join(run_all(page.render(openmetrics=False))), vars(figures)


def frames_of(work: Callable[[], object]) -> int:
    """Return how many frames of Python functions begin in a call."""
    begun = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal begun
        begun += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return begun


def slow_twin(replicas: ReplicaManager) -> tuple[bytes, dict[str, int]]:
    return shown(PartitionLines(replicas))


@pytest.mark.slow
def test_kept_lines_of_partitions_are_those_that_would_be_made_anew(tmp_path: Path) -> None:
    chosen = random.Random(5)
    with running(tmp_path) as harness:
        harness.create_topic("t", PARTITIONS)
        replicas = harness.broker.replicas
        kept = PartitionLines(replicas)
        for _ in range(20):
            for _ in range(chosen.randrange(3)):
                harness.produce("t", batch(b"a"), partition=chosen.randrange(PARTITIONS))
            assert shown(kept) == slow_twin(replicas)
        text = shown(kept)[0]
        frames = frames_of(lambda: run_all(kept.collect(Page(FAMILIES))))
        assert frames < 2 * PARTITIONS, "a partition without a change costs one frame, a family some"

        # No partition of the first block is led any more, which leaves a place without lines.
        for partition in list(replicas.partitions.values())[:64]:
            partition.leadership.end()
        assert shown(kept) == slow_twin(replicas)
        assert shown(kept)[0] != text
        for _ in range(3):
            harness.produce("t", batch(b"a"), partition=PARTITIONS - 1)
            assert shown(kept) == slow_twin(replicas)


def test_replicas_that_a_reassignment_is_adding_are_not_missing() -> None:
    partition = leader_of(open_log(MemoryFiles()), [0, 1])
    replicas: Any = SimpleNamespace(partitions=WalkableDict([(("t", 0), partition)]))
    lines = PartitionLines(replicas)

    def values() -> tuple[str, str, str, str, int]:
        text, figures = shown(lines)
        found = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if 'topic="t"' in line)
        labels = '{topic="t",partition="0"}'
        return (
            found[f"kafka_cluster_partition_replicascount{labels}"],
            found[f"kafka_cluster_partition_underreplicated{labels}"],
            found[f"kafka_topic_partition_replicas{labels}"],
            found[f"kafka_topic_partition_under_replicated_partition{labels}"],
            figures["under_replicated"],
        )

    assert values() == ("2", "0", "2", "0", 0)
    partition.become_leader(state(0, 0, [0, 1], [0, 2, 1], partition_epoch=1, adding=[2]), NOW)
    assert values() == ("2", "0", "3", "1", 0), "Apache Kafka's own count, and that of kafka_exporter"
    partition.become_leader(state(0, 0, [0], [0, 2, 1], partition_epoch=2, adding=[2]), NOW)
    assert values() == ("2", "1", "3", "1", 1)
    partition.become_leader(state(0, 0, [0, 2], [0, 2, 1], partition_epoch=3), NOW)
    assert values() == ("3", "1", "3", "1", 1)
