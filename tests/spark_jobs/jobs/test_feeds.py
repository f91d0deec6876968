"""The jobs that feed topics: generated records, and the files of a folder, with repeated batches and bad lines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs import files_to_topic, generate
from tests.spark_jobs.jobs.running import committed, exactly_once, forget_last_commit, run_job
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]


def test_generated_records_are_there_once_after_a_repeated_batch(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    target, checkpoint = topics.create(1), tmp_path / "checkpoint"
    arguments = ["--keys", "3", "--size", "90", "--column", "id=id", "--column", "half=chance < 0.5"]
    arguments += [*exactly_once(target, checkpoint), "--once"]
    assert run_job(spark, generate.JOB, topics, *arguments, "--rows", "40").records == 40
    forget_last_commit(checkpoint)
    more = run_job(spark, generate.JOB, topics, *arguments, "--rows", "70")
    assert more.records == 70  # with the 40 of the repeated batch, which the sink does not write again
    records = committed(topics, target)
    values = [json.loads(value) for _, value in records if value is not None]
    assert sorted(value["id"] for value in values) == list(range(70))
    assert {key for key, _ in records} == {b"key-0", b"key-1", b"key-2"}
    assert {len(value or b"") for _, value in records} == {90}
    assert {value["half"] for value in values} == {True, False}


def test_generated_records_at_a_rate_end_with_the_last_one(spark: SparkSession, topics: Topics) -> None:
    target = topics.create(1)
    arguments = ["--output-topic", target, "--value-format", "bytes", "--size", "33", "--interval", "100 milliseconds"]
    arguments += ["--rate", "200", "--rows", "50"]
    progress = run_job(spark, generate.JOB, topics, *arguments, once=())
    assert (progress.records, progress.batches) == (50, 3)
    written = topics.read(target, 1)
    assert len({value for _, value in written}) == 50
    assert {(key, len(value or b"")) for key, value in written} == {(None, 33)}


def test_the_files_of_a_folder_are_there_once_and_bad_lines_elsewhere(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    target, rejected, folder, checkpoint = topics.create(1), topics.create(1), tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    arguments = ["--path", folder, "--format", "csv", "--schema", "id BIGINT, name STRING", "--key", "value.id"]
    arguments += [*exactly_once(target, checkpoint), "--dead-letter-topic", rejected]
    (folder / "a.csv").write_text('id,name\n1,one\nx,bad\n2,"t,wo"\n')
    (folder / ".half").write_text("no line of this")
    first = run_job(spark, files_to_topic.JOB, topics, *arguments)
    assert first.dead_letters == 1
    forget_last_commit(checkpoint)
    (folder / "b.csv").write_text("id,name\n3,\n")
    run_job(spark, files_to_topic.JOB, topics, *arguments)
    assert Counter(committed(topics, target)) == Counter(
        [
            (b"1", b'{"id":1,"name":"one"}'),
            (b"2", b'{"id":2,"name":"t,wo"}'),
            (b"3", b'{"id":3,"name":null}'),
        ]
    )
    assert committed(topics, rejected) == [(None, b"x,bad")]


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("text", "b\xe9\n\nc\n".encode("latin-1"), {(b"in.x", b"b\xe9"), (b"in.x", b""), (b"in.x", b"c")}),
        ("whole", b"\0\n\xff", {(b"in.x", b"\0\n\xff")}),
        ("json", b'{"n":1}\n \n[2]\n', {(b"in.x", b'{"n":1}'), (b"in.x", b"[2]")}),
    ],
)
def test_lines_and_whole_files_keep_their_bytes(
    spark: SparkSession, topics: Topics, tmp_path: Path, form: str, text: bytes, expected: set[Any]
) -> None:
    target, folder = topics.create(1), tmp_path / "in"
    folder.mkdir()
    (folder / "in.x").write_bytes(text)
    arguments = ["--path", folder, "--format", form, "--key", "file", "--file-headers", "--output-topic", target]
    run_job(spark, files_to_topic.JOB, topics, *arguments, "--checkpoint", tmp_path / "checkpoint")
    assert set(topics.read(target, 1)) == expected


def test_a_line_that_is_not_json_names_its_file(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "in.x").write_text("{}\n{")
    arguments = ["--path", folder, "--format", "json", "--output-topic", topics.create(1)]
    with pytest.raises(JobError, match=r"a line of .*/in\.x cannot be decoded: the line is not JSON; --dead-letter"):
        run_job(spark, files_to_topic.JOB, topics, *arguments, "--checkpoint", tmp_path / "checkpoint")
