"""A job that kills itself with its JVM: `python killed_program.py STEP NUMBER JOB ARGUMENTS...`.

`append`: after the batch NUMBER is in a Delta table; `rename`: after NUMBER files of a batch have their final names.
"""

from __future__ import annotations

import os
import signal
import sys
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
    {"append": kill_after_append, "rename": kill_after_rename}[step](int(number))
    sys.exit(main(sys.argv[3:]))
