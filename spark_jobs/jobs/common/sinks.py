"""The sinks of a job, in one table: where its rows go, and with which guarantee.

Each sink is a function for `foreachBatch`. Spark repeats the unfinished batch after a restart with the same number and
the same records, so that the guarantee of a sink is decided by the second write of a batch:

* console: the rows are printed again;
* topic: the rows are produced again, at least once;
* exactly-once: a committed batch is skipped (`sink/`);
* Parquet: the folder `batch_id=<number>` of the earlier attempt is replaced, exactly once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.jobs.common.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Write = Callable[["DataFrame", int], None]
CHECKPOINT_FOLDER = "_checkpoint"  # Spark's readers skip names that begin with an underscore
TOPIC_COLUMNS = ("key", "value", "topic", "partition", "headers")
"""The columns of rows that are records already."""


@dataclass(frozen=True)
class Result:
    """The rows of a job.

    `mode` is the output mode, append or update. `order` names the columns that sort the rows on the console. Rows of a
    job with `is_records` are written to a topic as they are; others as `key` and one JSON object of all columns.
    """

    frame: DataFrame
    mode: str = "append"
    order: Sequence[str] = ()
    is_records: bool = False
    each: Callable[[DataFrame], DataFrame] | None = None
    """Applied to each batch, for what a streaming query cannot do."""
    letters: DataFrame | None = None
    """Records that the sink writes in the transaction of the rows."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave the frames out: functions of batches are pickled for Spark Connect, and each batch has its own."""
        return {**self.__dict__, "frame": None, "letters": None}


@dataclass(frozen=True)
class Sink:
    """A sink: `problem` returns what the options lack, or None; `open` checks the output and returns the writer.

    The only output of a job has no `open`: the job writes to it.
    """

    help: str
    guarantee: str
    problem: Callable[[Options], str | None]
    open: Callable[[SparkSession, Options, Result], Write] | None = None
    connect_problem: str | None = None
    """Why a run through Spark Connect, whose batches are those of a process of the server, cannot have it."""


def no_problem(options: Options) -> str | None:
    """Return None: the output needs no option."""
    return None


def topic_problem(options: Options) -> str | None:
    """Return what a topic sink misses."""
    if options.output_topic is None:
        return f"--sink {options.sink} needs --output-topic"
    if options.checkpoint is None and (options.needs_checkpoint or options.sink == "exactly-once"):
        return f"--sink {options.sink} needs --checkpoint, a folder that keeps the state between runs"
    same_cluster = getattr(options, "output_bootstrap_server", None) in (None, options.bootstrap_server)
    if same_cluster and options.output_topic in options.topics:
        return "--output-topic is one of the topics of --topic: the job would never end; choose another"
    return None


def parquet_problem(options: Options) -> str | None:
    """Return what the Parquet sink misses."""
    return "--sink parquet needs --output-path" if options.output_path is None else None


def open_console(spark: SparkSession, options: Options, result: Result) -> Write:
    """Return a writer that prints the rows of each batch as a table."""
    from pyspark.sql import functions as F

    limit = getattr(options, "rows", 20)

    def write(batch: DataFrame, batch_id: int) -> None:
        ordered = batch.orderBy(*[F.col(name) for name in result.order]) if result.order else batch
        rows = ordered.limit(limit + 1).collect()
        if rows:
            table = text_table(batch.columns, [tuple(row) for row in rows[:limit]])
            more = f"\n  more rows: --rows {limit} is the limit" if len(rows) > limit else ""
            print(f"batch {batch_id}:\n{table}{more}", file=sys.stdout, flush=True)

    return write


def open_topic(spark: SparkSession, options: Options, result: Result) -> Write:
    """Return a writer that produces the rows of each batch through the connector."""
    servers, topic = output_servers(options), options.output_topic
    assert topic is not None

    def write(batch: DataFrame, batch_id: int) -> None:
        frame = with_default_topic(records_of(batch, result), topic)
        writer = frame.write.format("kafka").options(**{**options.client, "kafka.bootstrap.servers": servers})
        if "topic" not in frame.columns:
            writer = writer.option("topic", topic)
        if "headers" in frame.columns:
            writer = writer.option("includeHeaders", "true")
        writer.save()

    return write


def records_of(batch: DataFrame, result: Result) -> DataFrame:
    """Return the rows as records for the connector."""
    from pyspark.sql import functions as F

    if result.is_records:
        return batch.select([name for name in TOPIC_COLUMNS if name in batch.columns])
    columns: list[Any] = [F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value")]
    if "key" in batch.columns:
        columns.insert(0, F.col("key").cast("string").alias("key"))
    return batch.select(columns)


def open_parquet(spark: SparkSession, options: Options, result: Result) -> Write:
    """Return a writer of one folder per batch, which replaces that of an earlier attempt."""
    from gregor.spark_jobs.sinks import refuse_foreign_batches

    path, checkpoint = options.output_path, checkpoint_of(options)
    assert path is not None and checkpoint is not None
    refuse_foreign_batches(spark, path, checkpoint)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{path.rstrip('/')}/batch_id={batch_id}")

    return write


def exactly_once_problem(options: Options) -> str | None:
    """Return what the exactly-once sink lacks."""
    if getattr(options, "transactional_id", None) is None:
        return "--sink exactly-once needs --transactional-id, a name that no other producer has"
    return topic_problem(options)


def open_exactly_once(spark: SparkSession, options: Options, result: Result) -> Write:
    """Return a writer of one transaction per batch."""
    from gregor.spark_jobs.sink.foreach_batch import exactly_once

    servers, topic = output_servers(options), options.output_topic
    transactional_id = getattr(options, "transactional_id", None)
    assert topic is not None and transactional_id is not None
    sink = {**options.client, "kafka.bootstrap.servers": servers}
    if not (result.is_records and "topic" in result.frame.columns):
        sink["topic"] = topic  # which would replace the column
    produce = exactly_once(transactional_id, sink, checkpoint_of(options))

    def write(batch: DataFrame, batch_id: int) -> None:
        produce(with_default_topic(records_of(batch, result), topic), batch_id)

    return write


def is_transactional(options: Options) -> bool:
    """Return whether one transaction can hold the result and a topic in the cluster of the input."""
    return options.sink == "exactly-once" and output_servers(options) == options.bootstrap_server


def with_letters(result: Result, topic: str) -> Result:
    """Return a result whose rows are records for `topic` and the dead letters."""
    from pyspark.sql import functions as F

    assert result.letters is not None and result.each is None
    records = with_default_topic(records_of(result.frame, result), topic)
    kinds = {field.name: field.dataType for field in result.letters.schema}
    missing = {"topic": F.lit(topic)} | {name: F.lit(None) for name in kinds if name != "topic"}
    columns = [
        (F.col(name) if name in records.columns else missing[name]).cast(kind).alias(name)
        for name, kind in kinds.items()
    ]
    return Result(records.select(columns).unionByName(result.letters), result.mode, is_records=True)


def output_servers(options: Options) -> str:
    """Return the brokers of the output."""
    return getattr(options, "output_bootstrap_server", None) or options.bootstrap_server


def with_default_topic(records: DataFrame, topic: str) -> DataFrame:
    """Return the records with this topic where they name none."""
    from pyspark.sql import functions as F

    if "topic" not in records.columns:
        return records
    return records.withColumn("topic", F.coalesce("topic", F.lit(topic)))


SINKS: dict[str, Sink] = {
    "console": Sink(
        "print the rows",
        "rows of a repeated batch are printed again",
        no_problem,
        open_console,
        "the batches run on the server, and --sink console would print there; give another --sink",
    ),
    "topic": Sink("a topic", "at least once: a repeated batch is produced again", topic_problem, open_topic),
    "exactly-once": Sink(
        "a topic, in transactions",
        "exactly once: one transaction per batch; read the topic with isolation.level=read_committed",
        exactly_once_problem,
        open_exactly_once,
    ),
    "parquet": Sink(
        "Parquet files", "exactly once: a repeated batch replaces its files", parquet_problem, open_parquet
    ),
}


def checkpoint_of(options: Options) -> str | None:
    """Return the folder of the checkpoint, for Parquet inside the output by default."""
    if options.checkpoint is None and options.sink == "parquet" and options.output_path is not None:
        return f"{options.output_path.rstrip('/')}/{CHECKPOINT_FOLDER}"
    return options.checkpoint


def writer_of(
    spark: SparkSession, options: Options, result: Result, observers: Sequence[Write] = ()
) -> DataStreamWriter:
    """Return the writer of a query to the sink that the options name; each observer sees a batch before the sink."""
    if result.letters is not None:
        assert options.output_topic is not None
        result = with_letters(result, options.output_topic)
    sink = SINKS[options.sink]
    assert sink.open is not None
    write = sink.open(spark, options, result)
    each = result.each

    def write_all(batch: DataFrame, batch_id: int) -> None:
        if each is not None:
            batch = each(batch)
        if not observers:
            write(batch, batch_id)
            return
        batch.persist()  # else each of them would compute the batch, and its state, again
        try:
            for one in (*observers, write):
                one(batch, batch_id)
        finally:
            batch.unpersist()

    return result.frame.writeStream.outputMode(result.mode).foreachBatch(write_all)


def text_table(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    """Return rows in aligned columns of plain text, numbers to the right."""
    cells = [[cell_text(value) for value in row] for row in rows]
    widths = [max(len(name), *(len(row[at]) for row in cells)) for at, name in enumerate(names)]
    right = [all(isinstance(row[at], int | float) or row[at] is None for row in rows) for at in range(len(names))]

    def line(texts: Sequence[str]) -> str:
        parts = [
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(texts, widths, right, strict=True)
        ]
        return ("  " + "  ".join(parts)).rstrip()

    return "\n".join([line(names), *map(line, cells)])


def cell_text(value: Any) -> str:
    """Return a value of a row as text in one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if hasattr(value, "asDict"):
        return json.dumps(value.asDict(recursive=True), default=str, ensure_ascii=False)
    return str(value).replace("\n", "\\n")
