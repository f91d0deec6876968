"""A table whose job paused longer than its topic keeps tombstones, or whose topic was made again: what the job prints,
and the table that is reconciled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs import table
from tests.compat.records import until
from tests.spark_jobs.jobs.running import Event, run_job, send
from tests.spark_jobs.tables.sessions import delta_session
from tests.spark_jobs.topics import Topics
from tests.support.processes import BrokerProcess

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.jvm,
    pytest.mark.compat,
    pytest.mark.by_day(2, group="long jobs of Spark"),
]

COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "1000",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
}
WAIT_S = 120.0


@pytest.fixture
def cleaned(tmp_path: Path) -> Iterator[Topics]:
    """Topics of a broker that compacts at once."""
    with BrokerProcess(tmp_path / "broker", {"log.cleaner.backoff.ms": "100"}) as broker:
        yield Topics(broker.bootstrap)


def latest(topics: Topics, topic: str) -> dict[str, str]:
    """Return the latest value of each key, without those that are deleted."""
    found = {(key or b"").decode(): value for key, value in topics.read(topic, 1)}
    return {key: value.decode() for key, value in found.items() if value is not None}


def test_missed_tombstones_are_announced_and_reconciled(
    spark: SparkSession, cleaned: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session, topic, path = delta_session(spark), cleaned.create(1, config=COMPACTED), tmp_path / "table"
    arguments = ["--topic", topic, "--value-format", "text", "--format", "delta", "--path", str(path)]
    arguments += ["--key-columns", "key"]

    def rows() -> dict[str, str]:
        return {row["key"]: row["value"] for row in session.read.format("delta").load(str(path)).collect()}

    send(cleaned, topic, [Event(b"stays", "a"), Event(b"is deleted", "b")])
    run_job(session, table.JOB, cleaned, *arguments)
    assert rows() == {"a": "stays", "b": "is deleted"}
    assert "--reconcile" not in capsys.readouterr().err
    send(cleaned, topic, [Event(None, "b")])

    def tombstone_is_gone() -> bool:
        send(cleaned, topic, [Event(b"", "filler")])  # rolls the segment, and makes the log dirty
        return b"b" not in [key for key, _ in cleaned.read(topic, 1)]

    until(tombstone_is_gone, "the end of the tombstone", WAIT_S)
    run_job(session, table.JOB, cleaned, *arguments)
    assert f"delete.retention.ms of {topic} is" in (warning := capsys.readouterr().err)
    assert "tombstones may have been removed" in warning and "--reconcile deletes such rows" in warning
    assert rows() == {**latest(cleaned, topic), "b": "is deleted"}
    run_job(session, table.JOB, cleaned, *arguments, "--reconcile")
    assert rows() == latest(cleaned, topic)


def test_a_topic_that_was_made_again_is_refused_and_reconciled(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    session, topic, path = delta_session(spark), topics.create(1), tmp_path / "table"
    arguments = ["--topic", topic, "--value-format", "text", "--format", "delta", "--path", str(path)]
    arguments += ["--key-columns", "key"]
    send(topics, topic, [Event(b"before %d" % number, key) for number in range(3) for key in "ab"])
    run_job(session, table.JOB, topics, *arguments)
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    admin.delete_topics([topic])[topic].result(WAIT_S)
    until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, "the end of the topic", WAIT_S)
    topics.create_named(topic, 1)
    send(topics, topic, [Event(b"again", "a"), Event(b"again", "c")])
    arguments += ["--checkpoint", str(tmp_path / "checkpoint")]
    with pytest.raises(JobError, match=f"has a row of {topic}-0 at offset 5, and the partition ends at 2: the topic"):
        run_job(session, table.JOB, topics, *arguments)
    run_job(session, table.JOB, topics, *arguments, "--reconcile")
    rows = session.read.format("delta").load(str(path)).collect()
    assert {row["key"]: row["value"] for row in rows} == {"a": "again", "c": "again"}
