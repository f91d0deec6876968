"""A job that kills itself with its JVM: `python killed_program.py STEP NUMBER JOB ARGUMENTS...`.

`append` and `merge`: after the batch NUMBER is in a Delta table, by an append or a MERGE; `rename`: after NUMBER files
of a batch have their final names.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from gregor.spark_jobs.cli import main
from gregor.spark_jobs.folders.hadoop import HadoopFiles
from gregor.spark_jobs.tables.delta import DeltaTarget
from gregor.spark_jobs.tables.target import Batch


def kill() -> None:
    os.killpg(0, signal.SIGKILL)  # the JVM is in the group of this process


def kill_after_append(number: int) -> None:
    append = DeltaTarget.append

    def stepping(self: DeltaTarget, frame: Any, batch: Batch) -> None:
        append(self, frame, batch)
        if batch.batch_id == number:
            kill()

    DeltaTarget.append = stepping  # type: ignore[method-assign]


def kill_after_merge(number: int) -> None:
    merge = DeltaTarget.merge

    def stepping(self: DeltaTarget, changes: Any, key_columns: Sequence[str], batch: Batch) -> None:
        merge(self, changes, key_columns, batch)
        if batch.batch_id == number:
            kill()

    DeltaTarget.merge = stepping  # type: ignore[method-assign]


def kill_after_rename(number: int) -> None:
    rename, done = HadoopFiles.rename, []

    def stepping(self: HadoopFiles, old: str, new: str) -> None:
        rename(self, old, new)
        if new.endswith(".parquet"):
            done.append(new)
        if len(done) == number:
            kill()

    HadoopFiles.rename = stepping  # type: ignore[method-assign]


if __name__ == "__main__":
    step, number = sys.argv[1:3]
    steps = {"append": kill_after_append, "merge": kill_after_merge, "rename": kill_after_rename}
    steps[step](int(number))
    sys.exit(main(sys.argv[3:]))
