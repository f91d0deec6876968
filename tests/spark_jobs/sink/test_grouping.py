"""Numbers by which Spark distributes rows to the task that writes their partition."""

import pytest

from gregor.spark_jobs.sink.grouping import group_sql, numbers_of_tasks, spark_hash


@pytest.mark.parametrize(("number", "hashed"), [(0, 933211791), (1, -559580957), (2, 1765031574), (-1, -1604776387)])
def test_hash_is_that_of_spark(number: int, hashed: int) -> None:
    """SELECT hash(0), hash(1), hash(2), hash(-1)"""
    assert spark_hash(number) == hashed


@pytest.mark.parametrize("tasks", [1, 2, 3, 8, 100])
def test_each_task_has_a_number(tasks: int) -> None:
    assert [spark_hash(number) % tasks for number in numbers_of_tasks(tasks)] == list(range(tasks))


def test_group_depends_on_topic_and_partition_only() -> None:
    assert group_sql("t", "p", 1) == "element_at(array(0), cast(pmod(cast(hash(t) as bigint) + p, 1) as int) + 1)"
