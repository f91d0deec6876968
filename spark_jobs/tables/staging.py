"""A folder of files that grows by whole batches, with a journal of renames: what was staged is published once.

The journal and the staged files are in a hidden folder beside the folder, on the same file system, so that no pattern
of a reader finds them. A batch is published in these steps; after an end anywhere between them, `recover` continues:

1. The rows are written to `staging`. A file that is there already belongs to an attempt that ended, and is deleted.
2. `batches/<number>.renames` appears by a rename: from now on the staged files are the batch, whatever a repeated batch
   would compute.
3. Each file is renamed to its final name, fixed by query, batch and task.
4. The journal is renamed to `<number>.done`, and those of earlier batches are deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Protocol

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.tables.target import Batch

STAGING = "staging"
RENAMES, DONE = ".renames", ".done"
_STAGED = re.compile(r"part-(\d+)-[^/]*?[.-]c(\d+)((?:\.\w+)*\.parquet)$")


class Files(Protocol):
    """The files of the folder in which the table and its hidden folder are, each by its path below that folder."""

    def names(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, relative to that folder, in order."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        ...

    def read(self, path: str) -> str:
        """Return the text of a file."""
        ...

    def write(self, path: str, text: str) -> None:
        """Write a file, in place of an older one."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file to a name that no file has."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file or a folder if it is there."""
        ...


class Publisher:
    """Publishes the batches of one query."""

    def __init__(self, files: Files, table: str, hidden: str) -> None:
        self._files = files
        self._staging = f"{hidden}/{STAGING}"
        self._journals = f"{hidden}/batches"
        self._table = table

    def last(self) -> Batch | None:
        """Return the last published batch, after completing one whose renames were begun."""
        self.recover()
        numbers = self._numbers(DONE)
        if not numbers:
            return None
        stored = json.loads(self._files.read(self._journal(max(numbers), DONE)))
        return Batch(stored["query_id"], max(numbers))

    def recover(self) -> None:
        """Complete the renames of a batch that was staged as a whole."""
        for number in self._numbers(RENAMES):
            self._complete(number)

    def publish(self, batch: Batch, stage: Callable[[str], None]) -> bool:
        """Publish what `stage` writes to the folder that it is given; return False for one that is there."""
        last = self.last()
        if last is not None and last.query_id != batch.query_id:
            raise JobError(
                f"{self._table} contains batches of the query {last.query_id}, and this one is {batch.query_id}; "
                "give the checkpoint of that query to continue it, or write to another --path"
            )
        if last is not None and last.batch_id >= batch.batch_id:
            return False
        self._files.delete(self._staging)
        stage(self._staging)
        renames = {
            name: f"{self._table}/{final_name(name, batch)}"
            for name in self._files.names(self._staging)
            if is_data(name)
        }
        journal = json.dumps({"query_id": batch.query_id, "renames": renames}, indent=1, sort_keys=True)
        unfinished = f"{self._journals}/unfinished"
        self._files.write(unfinished, journal)
        self._files.rename(unfinished, self._journal(batch.batch_id, RENAMES))
        self._complete(batch.batch_id)
        return True

    def _complete(self, number: int) -> None:
        journal = self._journal(number, RENAMES)
        for staged, final in json.loads(self._files.read(journal))["renames"].items():
            source = f"{self._staging}/{staged}"
            if self._files.exists(source):
                self._files.rename(source, final)
            elif not self._files.exists(final):
                raise JobError(
                    f"{self._table}: the file {final} of batch {number} is neither published nor staged, so that its "
                    "rows are missing; start anew with another --path and another --checkpoint"
                )
        earlier = self._numbers(DONE)
        self._files.rename(journal, self._journal(number, DONE))
        for one in earlier:
            self._files.delete(self._journal(one, DONE))
        self._files.delete(self._staging)

    def _journal(self, number: int, suffix: str) -> str:
        return f"{self._journals}/{number:010}{suffix}"

    def _numbers(self, suffix: str) -> list[int]:
        return [int(name.removesuffix(suffix)) for name in self._files.names(self._journals) if name.endswith(suffix)]


def is_data(name: str) -> bool:
    """Return whether a staged file has rows; the others are checksums and marks of Spark."""
    return _STAGED.search(name) is not None


def final_name(staged: str, batch: Batch) -> str:
    """Return the name of a staged file in the table: its folders, the query, the batch, the task and a count."""
    found = _STAGED.search(staged)
    assert found is not None
    task, count, kind = found.groups()
    return f"{staged[: found.start()]}{batch.query_id[:8]}-{batch.batch_id:010}-{task}-{count}{kind}"
