"""The programs as a user starts them: `gregor spark wordcount`, plain spark-submit, the demonstration."""

import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.launch.shared_classes import combined
from gregor.spark_jobs.session import PROVIDER_CLASS, SHORT_JOB, has_class
from tests.spark_jobs.client.test_offsets import committed
from tests.spark_jobs.topics import Topics
from tests.support.processes import ROOT

pytestmark = [pytest.mark.jvm, pytest.mark.compat]

BIN = Path(sys.executable).parent
WORDCOUNT = ROOT / "spark_jobs" / "jobs" / "wordcount.py"
JOB_WITH_A_WORKER = """\
import pathlib
import sys

from gregor.spark_jobs.session import open_session


def of_the_worker(number):
    from gregor.spark_jobs import errors

    return f"worker: {sys.executable} {pathlib.Path(errors.__file__).resolve()}"


spark = open_session("workers")
print(*spark.sparkContext.parallelize([0], 1).map(of_the_worker).collect())
spark.stop()
"""


def environment(**more: str) -> dict[str, str]:
    """As in a shell without the virtual environment on the PATH, and nothing that helps Python to find the project."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK", "PYSPARK"))}
    kept["SPARK_SUBMIT_OPTS"] = combined(SHORT_JOB)
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != BIN]
    return {**kept, "PATH": os.pathsep.join(path), **more}


def spark_submit(*arguments: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run this environment's spark-submit; it sends both streams of a Python program to its output."""
    command = [str(BIN / "spark-submit"), *arguments]
    env = environment(**more)
    return subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )


def heap_option(pid: int) -> str:
    """The heap that the Java process below this one was started with."""
    children = subprocess.run(["ps", "-ww", "-o", "args=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return next((word for word in children.split() if word.startswith("-Xmx")), f"no -Xmx in {children!r}")


@pytest.mark.slow
def test_session_has_the_connector_and_fits_the_cores(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    assert has_class(jvm, PROVIDER_CLASS)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.by_day(1, group="programs of Spark")
@pytest.mark.very_slow
def test_spark_submit_runs_the_job_from_a_checkout(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(), topics.create()
    topics.produce(source, ["to be or not", "to be"])
    arguments = [str(WORDCOUNT), "-b", topics.bootstrap, "--topic", source, "--once", "--sink", "topic"]
    arguments += ["--output-topic", target, "--checkpoint", str(tmp_path / "checkpoint")]
    done = spark_submit(*arguments, folder=tmp_path)
    output = done.stdout
    assert done.returncode == 0, output
    assert "counted 2 records in 1 batches" in output
    assert " INFO " not in output
    assert topics.last_values(target) == {"to": 2, "be": 2, "or": 1, "not": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.very_slow
def test_spark_submit_starts_workers_with_the_python_of_the_checkout(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB_WITH_A_WORKER)
    done = spark_submit(str(job), folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"worker: {sys.executable} {ROOT / 'spark_jobs' / 'errors.py'}" in done.stdout


@pytest.mark.very_slow
def test_a_python_without_gregor_is_named_with_the_remedy(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    done = spark_submit(str(WORDCOUNT), "--topic", "lines", folder=tmp_path, PYSPARK_PYTHON=str(python))
    assert done.returncode == 1, done.stdout
    assert f"wordcount: gregor is not installed for {python}" in done.stdout
    assert "PYSPARK_PYTHON=.venv/bin/python spark-submit" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.by_day(1, group="programs of Spark")
@pytest.mark.very_slow
def test_signal_ends_the_command_and_the_next_run_continues(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(), topics.create()
    command = [sys.executable, "-m", "gregor.spark_jobs.cli", "wordcount", "-b", topics.bootstrap, "--topic", source]
    command += ["--sink", "topic", "--output-topic", target, "--checkpoint", str(tmp_path / "checkpoint")]
    command += ["--source", "gregor", "--kafka-option", f"group.id=group-{source}"]
    command += ["--conf", "spark.master=local[1]", "--conf", "spark.driver.memory=555m"]
    environ = environment()

    def offset_of_group() -> int:
        return committed(topics.bootstrap, f"group-{source}", TopicPartition(source, 0))

    topics.produce(source, ["one two"])
    log = tmp_path / "log"
    with log.open("wb") as stream:
        running = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=stream, stderr=stream)
        try:
            deadline = time.monotonic() + 180
            while "batch 0: 1 records" not in log.read_text():
                assert running.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            assert heap_option(running.pid) == "-Xmx555m"
            running.send_signal(signal.SIGTERM)
            assert running.wait(180) == 0, log.read_text()
        finally:
            running.kill()
            running.wait()
    assert "stopped: counted 1 records" in log.read_text()
    assert offset_of_group() == 1  # the stop has committed the last batch: no later one was planned
    states = [path.name for path in (tmp_path / "checkpoint" / "state" / "0").iterdir() if path.name.isdecimal()]
    assert states == ["0"]  # one shuffle partition for the one core
    topics.produce(source, ["two three"])
    done = subprocess.run([*command, "--once"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert topics.last_values(target) == {"one": 1, "two": 2, "three": 1}
    assert offset_of_group() == 2


@pytest.mark.by_day(1, group="programs of Spark")
@pytest.mark.very_slow
def test_demo_counts_a_text_and_finds_it_right(bootstrap: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("the cat and the hat\n" * 30 + "a cat\n")
    command = [sys.executable, "-m", "gregor.spark_jobs.demo", "--text", str(text)]
    environ = environment(GREGOR_DEMO_BOOTSTRAP=bootstrap)
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    table = [words for line in done.stdout.splitlines() if len(words := line.split()) == 2 and words[1].isdecimal()]
    assert table == [["the", "60"], ["cat", "31"], ["and", "30"], ["hat", "30"], ["a", "1"]]
    assert f"{text}, 31 lines" in done.stdout
    assert "Checked:  5 words, 152 in all" in done.stdout
