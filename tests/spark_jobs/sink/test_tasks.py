"""Attempts of tasks, and the reports by which the driver judges an attempt of a batch."""

import pyarrow as pa
import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.driver import AttemptFailed
from gregor.spark_jobs.sink.foreach_batch import check_reports
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.state import Owner
from gregor.spark_jobs.sink.tasks import (
    Report,
    SecondAttempt,
    Topics,
    closed_batches,
    encoding_task,
    failure_report,
    refuse_second_attempt,
)

OWNER = Owner("q", "r")
NAME = "Thread[Executor task launch worker for task {}.{} in stage 7.{} (TID 9),5,main]"


def test_first_attempt_may_write() -> None:
    refuse_second_attempt(0, NAME.format(3, 0, 0))


@pytest.mark.parametrize(("task_attempt", "name"), [(1, NAME.format(3, 1, 0)), (0, NAME.format(3, 0, 1))])
def test_second_attempt_of_a_task_or_of_its_stage_may_not(task_attempt: int, name: str) -> None:
    with pytest.raises(SecondAttempt, match="Spark has started a task again .* wrote nothing"):
        refuse_second_attempt(task_attempt, name)


@pytest.mark.parametrize("name", [None, "", "stdout writer for python"])
def test_unknown_attempt_may_not(name: str | None) -> None:
    with pytest.raises(JobError, match="does not have the attempt of its stage"):
        refuse_second_attempt(0, name)


def test_reports_of_distinct_partitions_are_a_batch() -> None:
    check_reports([], OWNER)
    check_reports([Report("t", 0, 5, queryId="q"), Report("t", 1, 5, queryId="q"), Report("u", 0, queryId="q")], OWNER)


def test_two_writers_of_a_partition_fail_the_attempt() -> None:
    with pytest.raises(AttemptFailed, match="two tasks have written to t-0"):
        check_reports([Report("t", 0, 5, queryId="q"), Report("t", 0, 5, queryId="q")], OWNER)


def test_task_of_another_query_is_an_error() -> None:
    with pytest.raises(JobError, match="a task belongs to the query p, the batch to q"):
        check_reports([Report("t", 0, 5, queryId="p")], OWNER)


def test_failure_of_a_task_is_raised_with_its_code() -> None:
    report = failure_report(KafkaFailure(ErrorCode.PRODUCER_FENCED, "a batch was not written"))
    with pytest.raises(KafkaFailure, match=r"a batch was not written \(PRODUCER_FENCED\)") as raised:
        check_reports([Report("t", 0, 5, queryId="q"), report], OWNER)
    assert raised.value.code == ErrorCode.PRODUCER_FENCED


def test_second_attempt_can_be_repeated_and_a_wrong_row_cannot() -> None:
    again, wrong = failure_report(SecondAttempt("again")), failure_report(JobError("a row has no topic"))
    with pytest.raises(AttemptFailed, match="again"):
        check_reports([again], OWNER)
    with pytest.raises(JobError, match="a row has no topic"):
        check_reports([again, wrong], OWNER)


def test_batches_pass_from_the_first_stage_to_the_second_and_a_failure_behind_them() -> None:
    options = SinkOptions(ClientSettings((("fake", 9092),)), batch_bytes=200)
    good = pa.RecordBatch.from_pydict({"key": pa.array([b"k"] * 9), "value": pa.array([b"v" * 40] * 9)})
    encoded = list(encoding_task(options, Topics({"t": 1}, "t", 0))([good, good]))
    batches = [batch for part in encoded for batch in closed_batches(part)]
    assert {batch.partition for batch in batches} == {TopicPartition("t", 0)}
    assert [batch.records for batch in batches] == [2] * 9 and all(len(batch.data) <= 200 for batch in batches)
    bad = good.append_column("partition", pa.array([0] * 8 + [3], pa.int32()))
    last = list(encoding_task(options, Topics({"t": 1}, "t", 0))([good, bad]))[-1]
    failure = last.column("failure").to_pylist()[-1]
    assert failure.startswith("a row has the partition 3, but the partitions of t are 0 to 0: correct the column")
    with pytest.raises(JobError, match=failure):
        closed_batches(last)
