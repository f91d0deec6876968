"""DescribeLogDirs: folders, sizes, volumes, the selection by topic, and failed folders."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeLogDirsRequest
from tests.broker.harness import Harness, running


def describe(harness: Harness, version: int = 5, wanted: dict[str, list[int]] | None = None) -> dict[str, Any]:
    """The answer's folders by path."""
    topics = None
    if wanted is not None:
        topics = [DescribeLogDirsRequest.DescribableLogDirTopic(topic=t, partitions=p) for t, p in wanted.items()]
    answer = harness.ask(DescribeLogDirsRequest(topics=topics), version)
    assert answer.error_code == 0
    return {result.log_dir: result for result in answer.results}


def partitions_in(result: Any) -> dict[tuple[str, int], Any]:
    return {(topic.name, one.partition_index): one for topic in result.topics for one in topic.partitions}


@pytest.mark.parametrize("version", range(6))
def test_sizes_are_those_of_the_files(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, partitions=2)
    harness.produce(topic, bytes(1000), partition=1)
    path = os.path.abspath(harness.folder)
    (result,) = describe(harness, version).values()
    assert result.log_dir == path
    assert result.error_code == 0
    for index, found in ((index, partitions_in(result)[topic, index]) for index in (0, 1)):
        assert found.partition_size == os.stat(f"{path}/{topic}-{index}/{0:020d}.log").st_size
        assert (found.offset_lag, found.is_future_key) == (0, False)
    volume = os.statvfs(path)
    if version >= 4:
        assert result.total_bytes == volume.f_blocks * volume.f_frsize
        assert 0 < result.usable_bytes <= result.total_bytes


def test_only_what_was_asked_for(harness: Harness, topic: str) -> None:
    harness.create_topic(topic, partitions=3)
    (result,) = describe(harness, wanted={topic: [0, 2, 9], "absent": [0]}).values()
    assert sorted(partitions_in(result)) == [(topic, 0), (topic, 2)]
    (result,) = describe(harness, wanted={}).values()
    assert result.topics == []
    assert result.total_bytes > 0


def test_several_folders_share_the_partitions_and_a_failed_one_says_so(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    with running(tmp_path / "a", log_dirs=",".join(paths)) as harness:
        harness.create_topic("orders", partitions=4)
        found = describe(harness)
        assert list(found) == paths
        assert [len(partitions_in(found[path])) for path in paths] == [2, 2]
        logs = harness.broker.logs
        logs.fail_folder(logs.folders[1], OSError(errno.EIO, "broken"))
        found = describe(harness)
        assert [found[path].error_code for path in paths] == [0, ErrorCode.KAFKA_STORAGE_ERROR]
        assert [len(partitions_in(found[path])) for path in paths] == [2, 0]
        assert found[paths[1]].total_bytes == -1
