"""Both sinks as functions for `foreachBatch`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.retries import SystemClock
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.launch.unpickling import MadeInTasks, Portable
from gregor.spark_jobs.sink.driver import AttemptFailed, BatchDriver
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.owners import owner_by_checkpoint, owner_in_driver
from gregor.spark_jobs.sink.state import Owner
from gregor.spark_jobs.sink.tasks import (
    ENCODED_SCHEMA,
    REPORT_SCHEMA,
    Report,
    encoding_task,
    plain_task,
    transactional_task,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WriteBatch = Callable[["DataFrame", int], None]

_log = logging.getLogger("gregor.spark_jobs.sink")
_TASK_ERROR = re.compile(r"^(?:gregor\.spark_jobs\.[\w.]+|ImportError): (.*)$", re.MULTILINE)
_CANCELLED = ("SPARK_JOB_CANCELLED", "cancelled part of cancelled job group", "InterruptedException")


def exactly_once(transactional_id: str, options: Mapping[str, str], checkpoint: str | None = None) -> WriteBatch:
    """Return a function for `foreachBatch` that writes each batch in one transaction.

    The transactional id belongs to one query: its checkpoint. Rows have the columns and types of the official
    connector, and may go to several topics. Spark Connect needs the folder of the checkpoint, the option
    `checkpointLocation` of the query, as a batch does not know its query there.
    """
    if not transactional_id:
        raise JobError("the transactional id is empty; give the query a name that no other producer has")
    return ExactlyOnce(transactional_id, _checked(options), checkpoint)


def at_least_once(options: Mapping[str, str]) -> WriteBatch:
    """Return a function for `foreachBatch` that writes with idempotent producers; a repeated batch is written again."""
    return AtLeastOnce(_checked(options))


def _checked(options: Mapping[str, str]) -> SinkOptions:
    found = SinkOptions.from_options(options)
    for line in found.warnings:
        _log.warning("%s", line)
    return found


class AtLeastOnce(Portable):
    """The plain sink."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        from gregor.spark_jobs.sink.rows import records_of, topics_of

        records = records_of(batch, self._options.topic)
        with Cluster(self._options.settings) as cluster:
            topics = topics_of(self._options.topic, cluster, batch_id)
        records.mapInArrow(MadeInTasks(plain_task, self._options, topics), REPORT_SCHEMA).collect()


class ExactlyOnce(Portable):
    """The transactional sink. It is pickled for Spark Connect before its first batch."""

    def __init__(self, transactional_id: str, options: SinkOptions, checkpoint: str | None = None) -> None:
        self._transactional_id = transactional_id
        self._options = options
        self._checkpoint = checkpoint
        self._owner: Owner | None = None
        self._cluster: Cluster | None = None
        self._driver: BatchDriver | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        session = batch.sparkSession
        if session.conf.get("spark.speculation", "false") == "true":
            raise JobError("spark.speculation=true would write rows twice under one epoch; set it to false")
        from gregor.spark_jobs.sink.rows import check_columns

        check_columns(batch.schema, self._options.topic)
        cluster, driver = self._driver_of(self._owner_of(session, batch_id))
        cluster.refresh()  # topics may have grown
        if not driver.write(batch_id, lambda identity: self._write(batch, batch_id, identity)):
            # It is committed, but Spark needs its state, its watermark and its observed metrics again.
            _run(lambda: _computed(batch))

    def _owner_of(self, session: Any, batch_id: int) -> Owner:
        """Return the query and run of a batch; through Spark Connect this process has one run, see owners.py."""
        from pyspark.sql.utils import is_remote

        from gregor.spark_jobs.folders.folder import Folder

        if not is_remote():
            return owner_in_driver(session)
        if self._owner is not None:
            return self._owner
        if self._checkpoint is None:
            raise JobError(
                "through Spark Connect a batch does not know its query; give exactly_once(..., checkpoint=FOLDER) with "
                "the folder of the option checkpointLocation"
            )
        return owner_by_checkpoint(session.streams, Folder(session, self._checkpoint), batch_id)

    def _driver_of(self, owner: Owner) -> tuple[Cluster, BatchDriver]:
        """Return the driver of a run, a new one for each."""
        if self._driver is None or self._cluster is None or owner != self._owner:
            if self._cluster is not None:
                self._cluster.close()
            self._owner, self._cluster = owner, Cluster(self._options.settings)
            self._driver = BatchDriver(self._cluster, self._transactional_id, owner, self._options, SystemClock())
        return self._cluster, self._driver

    def _write(self, batch: DataFrame, batch_id: int, identity: ProducerIdentity) -> None:
        from pyspark.sql.utils import is_remote

        from gregor.spark_jobs.sink.rows import grouped, records_of, task_count, topics_of

        assert self._cluster is not None and self._owner is not None
        topics = topics_of(self._options.topic, self._cluster, batch_id)
        encode = MadeInTasks(encoding_task, self._options, topics)
        encoded = records_of(batch, self._options.topic).mapInArrow(encode, ENCODED_SCHEMA)
        tasks = task_count(batch, self._options.topic, self._cluster)
        query_id = self._owner.query_id if is_remote() else None
        write = MadeInTasks(transactional_task, self._options, identity, query_id)
        rows = _run(grouped(encoded, tasks).mapInArrow(write, REPORT_SCHEMA).collect)
        check_reports([Report(**row.asDict()) for row in rows], self._owner)


def check_reports(reports: list[Report], owner: Owner) -> None:
    """Raise the failure of a task, or AttemptFailed if two tasks have written one partition."""
    failures = [report for report in reports if report.failure is not None]
    for report in sorted(failures, key=lambda report: report.repeatable):  # the final ones first
        assert report.failure is not None
        if report.code is not None:
            raise KafkaFailure(report.code, report.failure)
        if report.repeatable:
            raise AttemptFailed(report.failure)
        raise JobError(report.failure)
    written: set[tuple[str | None, int | None]] = set()
    for report in reports:
        if (report.topic, report.partition) in written:
            raise AttemptFailed(f"two tasks have written to {report.topic}-{report.partition}")
        written.add((report.topic, report.partition))
        if report.queryId != owner.query_id:
            raise JobError(f"a task belongs to the query {report.queryId}, the batch to {owner.query_id}")


def _run(job: Callable[[], list[Any]]) -> list[Any]:
    """Run a Spark job; raise AttemptFailed if Spark could not finish it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        return job()
    except AnalysisException:
        raise
    except (PySparkException, Py4JError) as error:
        if any(word in str(error) for word in _CANCELLED):
            raise  # the query is being stopped
        raise AttemptFailed(f"Spark could not finish the batch: {cause_of(error)}") from error


def _computed(batch: DataFrame) -> list[Any]:
    batch.write.format("noop").mode("overwrite").save()
    return []


def cause_of(error: Exception) -> str:
    """Return the cause: the last error in the traceback of a task that has its remedy, or the first line."""
    raised = _TASK_ERROR.findall(str(error))
    lines = [line.strip() for line in raised[-1:] or str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
