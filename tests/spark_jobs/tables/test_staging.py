"""A batch is published once, whatever ends in between: every file operation fails once before it and once after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.tables.staging import Publisher, final_name, is_data
from gregor.spark_jobs.tables.target import Batch

HIDDEN = ".t.gregor"
QUERY = "0f3a5b1c-1111-2222-3333-444455556666"


class Killed(Exception):
    """The process has ended here."""


class MemoryFiles:
    """Files in memory; the operation `fails_at` ends the process before or after it has been done."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.operations = 0
        self.fails_at: int | None = None
        self.after = False

    def names(self, folder: str) -> list[str]:
        return sorted(name.removeprefix(f"{folder}/") for name in self.files if name.startswith(f"{folder}/"))

    def exists(self, path: str) -> bool:
        return path in self.files

    def read(self, path: str) -> str:
        return self.files[path]

    def write(self, path: str, text: str) -> None:
        def change() -> None:
            self.files[path] = text

        self._change(change)

    def rename(self, old: str, new: str) -> None:
        def change() -> None:
            assert new not in self.files
            self.files[new] = self.files.pop(old)

        self._change(change)

    def delete(self, path: str) -> None:
        def change() -> None:
            for name in [one for one in self.files if one == path or one.startswith(f"{path}/")]:
                del self.files[name]

        self._change(change)

    def _change(self, change: Callable[[], None]) -> None:
        self.operations += 1
        if self.operations == self.fails_at and not self.after:
            raise Killed
        change()
        if self.operations == self.fails_at:
            raise Killed

    def rows(self) -> list[str]:
        """Return the rows that a reader of the folder sees."""
        return sorted(row for name, text in self.files.items() if name.startswith("t/") for row in text.split())


def stage(files: MemoryFiles, rows: list[str], tasks: int, attempt: int) -> Callable[[str], None]:
    """Return a writer that distributes rows to as many files as there are tasks, with the names of Spark."""

    def write(folder: str) -> None:
        for task in range(tasks):
            name = f"{folder}/day=2024-01-0{task % 2 + 1}/part-{task:05}-attempt{attempt}.c000.snappy.parquet"
            files.write(name, " ".join(rows[task::tasks]))
        files.write(f"{folder}/_SUCCESS", "")

    return write


def batches(count: int) -> list[list[str]]:
    return [[f"{batch}-{row}" for row in range(5)] for batch in range(count)]


def publish_all(files: MemoryFiles, count: int, first_tasks: int) -> list[str]:
    """Publish batches, and start anew after an end; a repeated batch has another number of tasks. Return the rows."""
    attempt, number = 0, 0
    while number < count:
        publisher = Publisher(files, "t", HIDDEN)
        tasks = first_tasks + attempt
        try:
            publisher.publish(Batch(QUERY, number), stage(files, batches(count)[number], tasks, attempt))
            number += 1
        except Killed:
            attempt += 1
            seen = files.rows()
            assert len(seen) == len(set(seen))
            assert set(seen) <= {row for batch in batches(count)[: number + 1] for row in batch}
            assert {row for batch in batches(count)[:number] for row in batch} <= set(seen)
    return files.rows()


@pytest.mark.parametrize("after", [False, True])
def test_each_row_is_there_once_wherever_the_process_ended(after: bool) -> None:
    unbroken = MemoryFiles()
    expected = sorted(row for batch in batches(3) for row in batch)
    assert publish_all(unbroken, 3, 3) == expected
    for fails_at in range(1, unbroken.operations + 1):
        files = MemoryFiles()
        files.fails_at, files.after = fails_at, after
        assert publish_all(files, 3, 3) == expected
        assert not any(is_data(name) for name in files.names(f"{HIDDEN}/staging"))
        assert Publisher(files, "t", HIDDEN).last() == Batch(QUERY, 2)


def test_a_repeated_batch_writes_nothing() -> None:
    files = MemoryFiles()
    for _ in range(2):
        published = Publisher(files, "t", HIDDEN).publish(Batch(QUERY, 4), stage(files, ["a", "b"], 2, 0))
    assert not published
    assert files.rows() == ["a", "b"]
    assert Publisher(files, "t", HIDDEN).last() == Batch(QUERY, 4)


def test_batches_of_another_query_are_refused() -> None:
    files = MemoryFiles()
    Publisher(files, "t", HIDDEN).publish(Batch(QUERY, 0), stage(files, ["a"], 1, 0))
    with pytest.raises(JobError, match="contains batches of the query 0f3a5b1c"):
        Publisher(files, "t", HIDDEN).publish(Batch("other", 0), stage(files, ["a"], 1, 0))


def test_a_staged_file_that_was_deleted_is_an_error() -> None:
    files = MemoryFiles()
    files.fails_at, files.after = 6, True  # the journal of a batch with two files
    with pytest.raises(Killed):
        Publisher(files, "t", HIDDEN).publish(Batch(QUERY, 0), stage(files, ["a", "b"], 2, 0))
    files.delete(f"{HIDDEN}/staging")
    with pytest.raises(JobError, match="neither published nor staged"):
        Publisher(files, "t", HIDDEN).recover()


def test_names_of_spark_become_names_of_the_batch() -> None:
    batch = Batch(QUERY, 12)
    for staged, final in (
        ("part-00003-ab-cd-c000.snappy.parquet", "0f3a5b1c-0000000012-00003-000.snappy.parquet"),
        (
            "day=2024-01-02/hour=5/part-00000-ab.c001.parquet",
            "day=2024-01-02/hour=5/0f3a5b1c-0000000012-00000-001.parquet",
        ),
    ):
        assert is_data(staged)
        assert final_name(staged, batch) == final
    assert not is_data("_SUCCESS")
    assert not is_data("day=2024-01-02/.part-00000-ab.c001.parquet.crc")
