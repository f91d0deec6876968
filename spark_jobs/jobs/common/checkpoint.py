"""The identity of a checkpoint: the job and the options that wrote it, in a file beside Spark's own.

Spark continues a checkpoint with whatever query it is given. A query of another job, or with another window or topic,
would then fail deep inside the state store, or give a wrong result; here it is one error before the query starts.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.folders.folder import Folder as Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDENTITY = "gregor-job.json"
FIRST_JOB = "wordcount"
"""The job that also continues checkpoints without an identity: the first versions wrote none, and had this job only."""


def claim(
    spark: SparkSession, checkpoint: str, job: str, fixed: dict[str, Any], evolving: Collection[str] = ()
) -> dict[str, Any] | None:
    """Write the identity of a new checkpoint, or check that of an old one; the `evolving` options may have changed.

    Return the fixed options of an old one. Raise JobError if it belongs to another job, or to other options.
    """
    folder = Folder(spark, checkpoint)
    stored = read_identity(folder)
    if stored is not None:
        refuse_other(checkpoint, stored, job, fixed, evolving)
    if stored is None or any(stored["options"].get(name) != fixed[name] for name in evolving):
        folder.write(IDENTITY, json.dumps({"job": job, "options": fixed}, indent=1, sort_keys=True))
    if stored is None:
        return None
    options: dict[str, Any] = stored["options"]
    return options


def check(
    spark: SparkSession, checkpoint: str, job: str, fixed: dict[str, Any], evolving: Collection[str] = ()
) -> None:
    """Raise JobError if a checkpoint in which a batch was begun belongs to another job, or to other options."""
    stored = read_identity(Folder(spark, checkpoint))
    if stored is not None:
        refuse_other(checkpoint, stored, job, fixed, evolving)


def kept_option(spark: SparkSession, checkpoint: str | None, name: str) -> Any:
    """Return the value of an option with which a checkpoint was begun; None if there is no such."""
    identity = read_identity(Folder(spark, checkpoint)) if checkpoint is not None else None
    return identity["options"].get(name) if identity is not None else None


def read_identity(folder: Folder) -> dict[str, Any] | None:
    """Return the identity of a checkpoint in which a batch was begun; None if there is none such."""
    if not folder.names("offsets/[0-9]*"):
        return None
    text = folder.read(IDENTITY)
    if text is None:
        return {"job": None, "options": {}}
    try:
        identity: dict[str, Any] = json.loads(text)
        return {"job": identity["job"], "options": dict(identity["options"])}
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(
            f"{folder.path}/{IDENTITY} is damaged ({error}), so that the job of this checkpoint is unknown; "
            "start with another --checkpoint"
        ) from error


def refuse_other(
    checkpoint: str, stored: dict[str, Any], job: str, fixed: dict[str, Any], evolving: Collection[str] = ()
) -> None:
    """Raise JobError if the stored identity is not that of the job with these options."""
    owner, options = stored["job"], stored["options"]
    if owner != job and not (owner is None and job == FIRST_JOB):
        whose = f"the job {owner}" if owner else "a query that is no job of gregor"
        raise JobError(f"the checkpoint {checkpoint} belongs to {whose}, not to {job}; give another --checkpoint")
    changed = [name for name in fixed if name not in evolving and name in options and options[name] != fixed[name]]
    if changed:
        was = ", ".join(shown(name, options[name]) for name in changed)
        now = ", ".join(shown(name, fixed[name]) for name in changed)
        raise JobError(
            f"the checkpoint {checkpoint} was written with {was}, and this run has {now}; "
            "give the same options to continue it, or another --checkpoint to start anew"
        )


def shown(name: str, value: Any) -> str:
    """Return an option as on a command line."""
    return f"no {name}" if value in (None, False, [], {}) else name if value is True else f"{name} {value!r}"
