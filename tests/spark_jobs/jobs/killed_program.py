"""A job that kills itself with its JVM: `python killed_program.py STEP NUMBER JOB ARGUMENTS...`.

`append` and `merge`: after the batch NUMBER is in a Delta table, by an append or a MERGE; `rename`: after NUMBER files
of a batch have their final names.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from gregor.spark_jobs.cli import main
from gregor.spark_jobs.folders.hadoop import HadoopFiles
from gregor.spark_jobs.tables.delta import DeltaTarget


def kill_after(owner: type, method: str, is_last: Callable[..., bool]) -> None:
    """Let this process and its JVM die behind the call of the method for which `is_last` of its arguments is true."""
    original = getattr(owner, method)

    def followed_by_death(*arguments: Any) -> None:
        original(*arguments)
        if is_last(*arguments):
            os.killpg(0, signal.SIGKILL)  # the JVM is in the group of this process

    setattr(owner, method, followed_by_death)


def arrange(step: str, number: int) -> None:
    renamed: list[str] = []

    def is_last_file(_files: HadoopFiles, _old: str, new: str) -> bool:
        renamed.extend([new] if new.endswith(".parquet") else [])
        return len(renamed) == number

    def is_batch(_target: DeltaTarget, *arguments: Any) -> bool:
        return bool(arguments[-1].batch_id == number)

    owner, is_last = (HadoopFiles, is_last_file) if step == "rename" else (DeltaTarget, is_batch)
    kill_after(owner, step, is_last)


if __name__ == "__main__":
    arrange(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
