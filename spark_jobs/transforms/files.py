"""The contents of files as records: text lines, JSON lines, rows of CSV, or whole files.

Rows have `value` (text, the columns of a CSV row as a struct, or the bytes of a file), `content` (the bytes of the
record), `file`, `path`, `modified`, and `problem`, the reason why a row cannot be decoded, null if it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CORRUPT = "_corrupt_record"
NAME_HEADER, TIME_HEADER, PROBLEM_HEADER = "file.name", "file.modification.time", "__connect.errors.exception.message"
"""The names of headers; the last one is that of Kafka Connect (DeadLetterQueueReporter)."""
_FILE = ("_metadata.file_name", "_metadata.file_path", "_metadata.file_modification_time")


def rows_of_text(lines: DataFrame) -> DataFrame:
    """Return the rows of Spark's source `text`."""
    return lines.select("value", F.col("value").cast("binary").alias("content"), *file_columns(), no_problem())


def rows_of_json(lines: DataFrame, parsed: tuple[Column, Column] | None = None) -> DataFrame:
    """Return the rows of JSON lines; empty lines are left out.

    `parsed` are the struct and the problem of a line, decoded with a schema; without them `value` is the text.
    """
    is_json = F.try_parse_json("value").isNotNull()
    value, problem = parsed or (F.col("value"), F.when(~is_json, "the line is not JSON"))
    content = F.col("value").cast("binary").alias("content")
    filled = lines.filter(F.trim("value") != "")
    return filled.select(value.alias("value"), content, *file_columns(), problem.alias("problem"))


def rows_of_csv(rows: DataFrame) -> DataFrame:
    """Return the rows of Spark's source `csv`, read with the column CORRUPT for lines that do not fit the schema."""
    value = F.struct(*[name for name in rows.columns if name != CORRUPT])
    whole = F.to_json(value, {"ignoreNullFields": "false"}).cast("binary")
    return rows.select(
        value.alias("value"),
        F.coalesce(F.col(CORRUPT).cast("binary"), whole).alias("content"),
        *file_columns(),
        F.when(F.col(CORRUPT).isNotNull(), "the line does not fit the schema").alias("problem"),
    )


def rows_of_whole_files(files: DataFrame) -> DataFrame:
    """Return the rows of Spark's source `binaryFile`."""
    return files.select(F.col("content").alias("value"), "content", *file_columns(), no_problem())


def file_columns() -> list[Column]:
    """Return the columns about the file."""
    return [F.col(source).alias(name) for source, name in zip(_FILE, ("file", "path", "modified"), strict=True)]


def no_problem() -> Column:
    """Return the column `problem` of rows that cannot have one."""
    return F.lit(None).cast("string").alias("problem")


def records(rows: DataFrame, key: str | None, with_file: bool, dead_letters: str | None) -> DataFrame:
    """Return the records `key`, `value`, `topic` and `headers` of rows.

    A row with a problem goes to the topic `dead_letters`, with the reason and its file in the headers; without such a
    topic it fails the query.
    """
    checked = rows if dead_letters is not None else rows.filter(_without_problem())
    is_good = F.col("problem").isNull()
    key_of = F.lit(None).cast("string") if key is None else F.expr(key).cast("string")
    columns = [F.when(is_good, key_of).alias("key"), F.col("content").alias("value")]
    file = [
        header(NAME_HEADER, F.col("file")),
        header(TIME_HEADER, F.unix_millis("modified").cast("string")),
    ]
    if dead_letters is not None:
        none = F.array(*file) if with_file else F.expr("CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)")
        bad = F.array(*file, header(PROBLEM_HEADER, F.col("problem")))
        columns += [
            F.when(~is_good, dead_letters).alias("topic"),
            F.when(is_good, none).otherwise(bad).alias("headers"),
        ]
    elif with_file:
        columns.append(F.array(*file).alias("headers"))
    return checked.select(columns)


def header(name: str, text: Column) -> Column:
    """Return a header of a record."""
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))


def _without_problem() -> Column:
    text = F.concat(
        F.lit("a line of "), F.col("path"), F.lit(" cannot be decoded: "), F.col("problem"),
        F.lit("; --dead-letter-topic NAME stores such lines and continues"),
    )  # fmt: skip
    return F.when(F.col("problem").isNull(), True).otherwise(F.raise_error(text).cast("boolean"))
