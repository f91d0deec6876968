"""The arguments of the job `table`, and the pause after which tombstones may be gone. No JVM."""

from __future__ import annotations

import pytest

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs import table
from gregor.spark_jobs.jobs.common.tombstones import offset_problem, pause_problem
from gregor.spark_jobs.tables.change import refuse_names

HOUR_MS = 3_600_000
ARGUMENTS = ["--topic", "users", "--path", "/data/users"]


def parse(*arguments: str) -> table.Options:
    options: table.Options = table.JOB.parse([*ARGUMENTS, *arguments])
    return options


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--format", "parquet", "--key-columns", "key"], "--key-columns: Parquet files cannot be updated"),
        (["--format", "parquet", "--compact", "3"], "--compact: Parquet files cannot be compacted"),
        (["--format", "delta", "--reconcile"], "--reconcile needs --key-columns"),
        (["--format", "delta", "--topic", "a,b"], "--topic names one topic"),
        (["--format", "delta", "--path", "users"], "--path without a folder needs --checkpoint"),
        (["--format", "orc"], "invalid choice: 'orc'"),
        (["--format", "delta", "--sink", "console"], "unrecognized arguments: --sink console"),
    ],
)
def test_an_impossible_combination_is_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(*arguments)
    assert problem in capsys.readouterr().err


def test_a_checkpoint_fixes_the_table_but_not_its_columns() -> None:
    options = parse("--format", "delta", "--key-columns", "id, name", "--column", "id=key", "--value-format", "text")
    assert options.key_columns == ["id", "name"]
    fixed = options.fixed()
    assert fixed["--format"] == "delta"
    assert fixed["--path"] == "/data/users"
    assert options.evolving() == {"--schema", "--column"}


def test_records_of_aborted_transactions_are_not_read_unless_the_user_wants_them() -> None:
    assert table.committed_only(parse("--format", "delta")).client == {"kafka.isolation.level": "read_committed"}
    for argument, value in (("--kafka-option", "isolation.level"), ("--source-option", "kafka.isolation.level")):
        options = table.committed_only(parse("--format", "delta", argument, f"{value}=read_uncommitted"))
        assert options.client == {"kafka.isolation.level": "read_uncommitted"}  # of the stream and of --reconcile


def test_an_option_of_the_source_chooses_the_isolation_of_reconciling_too() -> None:
    arguments = ["--kafka-option", "isolation.level=read_uncommitted", "--kafka-option", "client.id=c"]
    given = parse("--format", "delta", *arguments, "--source-option", "Kafka.isolation.level=read_committed")
    assert table.committed_only(given).client == {
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "c",
    }


def test_a_pause_longer_than_tombstones_are_kept_is_reported_with_the_remedy() -> None:
    assert pause_problem("users", 24 * HOUR_MS, 24 * HOUR_MS, True) is None
    problem = pause_problem("users", 30 * HOUR_MS, 24 * HOUR_MS, True)
    assert problem is not None
    assert "was 30.0 hours ago, and delete.retention.ms of users is 24.0 hours: tombstones may have been" in problem
    assert problem.endswith("; --reconcile deletes such rows: it reads the whole topic once")
    problem = pause_problem("users", 90_000, 1000, True)
    assert problem is not None
    assert problem.startswith("the last batch was 90.0 seconds ago, and delete.retention.ms of users is 1.0 seconds:")
    problem = pause_problem("users", 30 * HOUR_MS, 24 * HOUR_MS, False)
    assert "by default (that of users is not known)" in (problem or "")


def test_offsets_behind_the_ends_of_a_topic_are_refused_with_the_remedy() -> None:
    ranges = {TopicPartition("users", 0): (3, 10), TopicPartition("users", 1): (0, 0)}
    assert offset_problem("users", {0: 9}, ranges) is None
    assert offset_problem("users", {}, ranges) is None
    assert (offset_problem("users", {0: 10}, ranges) or "").startswith(
        "the table has a row of users-0 at offset 10, and the partition ends at 10: the topic was deleted and made"
    )
    assert "users-1 at offset 0, and the partition ends at 0" in (offset_problem("users", {0: 9, 1: 0}, ranges) or "")
    problem = offset_problem("users", {2: 5}, ranges)  # with fewer partitions than before
    assert "users-2 at offset 5, and the partition ends at 0" in (problem or "")
    assert (problem or "").endswith("; give --reconcile, which replaces them, and another --checkpoint")


@pytest.mark.parametrize(
    ("names", "keys", "problem"),
    [
        (["id", "Day"], [], "cannot have the column Day"),
        (["id", "ID"], [], "cannot have the column id"),
        (["id", "_offset"], [], "cannot have the column _offset"),
        (["id", "name"], ["key"], "--key-columns key is no column of the table; its columns are id, name"),
    ],
)
def test_names_of_the_table_itself_are_refused(names: list[str], keys: list[str], problem: str) -> None:
    with pytest.raises(JobError, match=problem):
        refuse_names(names, keys)
