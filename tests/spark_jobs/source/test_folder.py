"""The option `path`: batch queries on the data folder of a stopped broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gregor.spark_jobs.arrow.plan import Filters, ReadPlan
from gregor.spark_jobs.arrow.reader import read
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.filters import Pushed
from gregor.spark_jobs.source.folder import plan_folder
from gregor.spark_jobs.source.options import SourceOptions
from gregor.storage.fs.folder_lock import FolderLock
from tests.spark_jobs.arrow.stopped_broker import folder_of_stopped_broker

CLUSTER_METADATA = "__cluster_metadata-0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / CLUSTER_METADATA).mkdir()
    (tmp_path / "orders-of-2024-0").mkdir()
    return folder_of_stopped_broker(tmp_path)


def plans(folder: Path, pushed: Pushed | None = None, **options: str) -> list[ReadPlan]:
    topics = {} if options.keys() & {"subscribePattern", "assign"} else {"subscribe": "orders"}
    return plan_folder(
        SourceOptions.from_options({"path": str(folder), **topics, **options}, False), pushed or Pushed()
    )


def keys(planned: list[ReadPlan]) -> bytes:
    return b"".join(key.as_buffer().to_pybytes() for plan in planned for rows in read(plan) for key in rows["key"])


def test_all_that_is_committed_is_read(folder: Path) -> None:
    assert keys(plans(folder)) == b"abcccde"
    assert keys(plans(folder, mode="files")) == b"abcccde"
    assert keys(plans(folder, **{"kafka.isolation.level": "read_committed"})) == b"abd"


def test_limits_and_filters_and_the_division_among_tasks(folder: Path) -> None:
    limits = {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":7}}'}
    assert keys(plans(folder, **limits)) == b"bcccd"
    named = {"startingOffsets": '{"orders":{"0":-2}}', "endingOffsets": '{"orders":{"0":-1}}'}
    assert keys(plans(folder, **named)) == b"abcccde"
    (filtered,) = plans(folder, Pushed(bounds=Filters(min_offset=1, max_offset=2)))
    assert (filtered.range.start_offset, filtered.range.end_offset, keys([filtered])) == (1, 3, b"bc")
    divided = plans(folder, maxRecordsPerPartition="3")
    assert [(plan.range.start_offset, plan.range.end_offset) for plan in divided] == [(0, 2), (2, 5), (5, 8)]
    assert keys(divided) == b"abcccde"


def test_patterns_match_topics_of_users(folder: Path) -> None:
    (folder / CLUSTER_METADATA).rmdir()
    shutil.copytree(folder / "orders-0", folder / CLUSTER_METADATA)
    assert {plan.range.topic for plan in plans(folder, subscribePattern=".*")} == {"orders"}
    assert plans(folder, subscribePattern="order") == []
    assert keys(plans(folder, assign='{"orders":[0]}')) == b"abcccde"


def test_offsets_that_the_folder_does_not_have_are_lost_data(folder: Path) -> None:
    (folder / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    limits = {"startingOffsets": '{"orders":{"0":0}}'}
    with pytest.raises(JobError, match="orders-0 has the offsets 1 to 8 in the data folder .* names 0. Some data may"):
        plans(folder, **limits)
    assert keys(plans(folder, failOnDataLoss="false", **limits)) == b"bcccde"
    with pytest.raises(JobError, match="endingOffsets names 9"):
        plans(folder, endingOffsets='{"orders":{"0":9}}')


def test_what_the_folder_does_not_have_is_named(folder: Path) -> None:
    with pytest.raises(
        JobError, match="has no partition of the topic none; it has partitions of __cluster_metadata, ord"
    ):
        plans(folder, subscribe="none")
    with pytest.raises(JobError, match="assign names orders-1, which the data folder"):
        plans(folder, assign='{"orders":[0,1]}')
    with pytest.raises(JobError, match="startingOffsets must name all partitions"):
        plans(folder, startingOffsets='{"orders":{"1":0}}')
    with pytest.raises(JobError, match="/none cannot be read: No such file"):
        plans(folder / "none")


def test_a_folder_that_a_broker_uses_is_refused_by_the_driver_and_by_tasks(folder: Path) -> None:
    planned = plans(folder)
    lock = FolderLock(str(folder))
    with pytest.raises(JobError, match="a broker uses the data folder"):
        plans(folder)
    with pytest.raises(JobError, match="a broker uses the data folder"):
        keys(planned)
    lock.release()
