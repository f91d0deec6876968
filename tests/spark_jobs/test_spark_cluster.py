"""A job with state on a real cluster of two workers: one worker is killed under way, then the driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import threading
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gregor.spark_jobs.launch.cluster import Settings, SparkCluster
from gregor.spark_jobs.session import SHORT_JOB
from tests.spark_jobs.test_wordcount_job import make_lines, plain_count
from tests.spark_jobs.topics import Topics
from tests.support.processes import ROOT, clean_environment, free_port

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.jvm,
    pytest.mark.compat,
    pytest.mark.by_day(2, group="other sessions of Spark"),
]

PATIENCE_S = 300
"""For each wait; on a quiet machine the whole test needs less than a minute."""
SECRET = "not-for-any-log"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    settings = Settings(workers=2, cores=1, memory="512m")
    with SparkCluster(settings, tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Driver:
    """A process of `gregor spark wordcount` on the cluster, with its JVM; killed as a group."""

    def __init__(self, cluster: SparkCluster, folder: Path, *arguments: str) -> None:
        self.output = folder / "driver.out"
        self.web_page = f"http://127.0.0.1:{free_port()}"
        conf = {
            "spark.ui.enabled": "true",
            "spark.ui.port": self.web_page.rpartition(":")[2],
            "spark.hadoop.store.credential": SECRET,  # Spark's own rules redact only what has "password" in it
            "spark.executor.memory": "512m",
            "spark.cores.max": "2",
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.extraJavaOptions": SHORT_JOB,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(folder),
        }
        command = [sys.executable, "-m", "gregor.broker", "spark", "wordcount", "--master", cluster.url, *arguments]
        command += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**clean_environment(), "SPARK_SUBMIT_OPTS": SHORT_JOB},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def web_pages(self) -> dict[str, str]:
        """Return the texts of its pages that show settings, options and plans, and of the same things as JSON."""
        [application] = json.loads(self._page("/api/v1/applications"))
        of_application = f"/api/v1/applications/{application['id']}"
        queries = f"{of_application}/sql?details=true&planDescription=true&length=1000"
        last = max(one["id"] for one in json.loads(self._page(queries)))
        paths = ["/environment/", "/SQL/", f"/SQL/execution/?id={last}", "/StreamingQuery/", "/jobs/", "/stages/"]
        return {path: self._page(path) for path in [*paths, f"{of_application}/environment", queries]}

    def _page(self, path: str) -> str:
        with urllib.request.urlopen(self.web_page + path, timeout=PATIENCE_S) as response:
            return str(response.read().decode())

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def wait_until(condition: Callable[[], object], driver: Driver) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert driver.process.poll() is None and time.monotonic() < deadline, driver.output.read_text()
        threading.Event().wait(0.1)


def test_counts_survive_a_killed_worker_and_a_killed_driver(
    cluster: SparkCluster, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    jaas = f'kafka.sasl.jaas.config=org.apache.Module required username="u" password="{SECRET}";'
    job = ["-b", topics.bootstrap, "--topic", source, "--sink", "topic", "--output-topic", target]
    job += ["--checkpoint", str(tmp_path / "checkpoint"), "--interval", "0 seconds", "--source-option", jaas]
    parts = [make_lines(40, seed) for seed in range(3)]

    def counted(*lines: list[str]) -> Callable[[], bool]:
        return lambda: topics.last_values(target) == plain_count(*lines)

    topics.produce(source, parts[0])
    driver = Driver(cluster, tmp_path, *job)
    try:
        wait_until(counted(parts[0]), driver)
        pages = driver.web_pages()
        cluster.workers[0].kill()
        topics.produce(source, parts[1])
        wait_until(counted(*parts[:2]), driver)
    finally:
        driver.kill()
    topics.produce(source, parts[2])
    driver = Driver(cluster, tmp_path, *job, "--once")
    try:
        assert driver.process.wait(PATIENCE_S) == 0, driver.output.read_text()
    finally:
        driver.kill()
    assert topics.last_values(target) == plain_count(*parts)
    assert [path for path, text in pages.items() if SECRET in text] == []
    assert [path for path, text in pages.items() if source in text and "redacted" in text] != []
    logs = [driver.output, *tmp_path.glob("app-*"), *tmp_path.glob("eventlog_v2*/*"), *cluster.folder.glob("*.log")]
    assert len(logs) >= 5
    assert [path.name for path in logs if SECRET in path.read_text(errors="replace")] == []


CHECK = """
import sys
from pyspark.errors import PySparkException
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.client.listeners import Listeners
from gregor.spark_jobs.launch.workers import require_workers
from gregor.spark_jobs.session import open_session
master, archive, topic, *ports = sys.argv[1:]
settings = {"spark.master": master, "spark.executor.memory": "512m", "spark.cores.max": "1"}
settings["spark.task.maxFailures"] = "1"
if archive:
    settings["spark.archives"] = archive + "#environment"
spark = open_session("check", settings)
for port in ports:
    try:
        require_workers(spark, [Listeners([("127.0.0.1", int(port))])])
        print("fine")
    except JobError as error:
        print(error)
if topic:
    options = {"kafka.bootstrap.servers": f"127.0.0.1:{ports[-1]}", "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.read.format("gregor").options(**options).load().selectExpr("cast(value as string) value")
    try:
        rows = frame.collect()
    except PySparkException as error:
        print(*{line for line in str(error).splitlines() if "Error: " in line}, sep="\\n")
        sys.exit()
    print(*sorted(row["value"] for row in rows))
    imported = lambda _: [module.__file__ for module in map(__import__, ["gregor", "lz4", "numpy", "pyarrow"])]
    print(*spark.sparkContext.parallelize([0], 1).flatMap(imported).collect())
spark.stop()
"""


def check(cluster: SparkCluster, folder: Path, python: str, archive: str, topic: str, *ports: str) -> list[str]:
    """Return the lines of a driver about the workers, which run that Python, one for each port; with a topic also one
    of its values, which the workers have read, and one of the files that they have imported."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK, cluster.url, archive, topic, *ports],
        cwd=folder,
        env={**clean_environment(), "SPARK_SUBMIT_OPTS": SHORT_JOB, "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


PACKED = ("numpy", "numpy.libs", "pyarrow", "lz4", "snappy", "cramjam", "zstandard", "crc32c")
"""The libraries of the reader, MODULES of spark_jobs/launch/workers.py, with the folders that these import."""
LEFT_OUT = ("tests", "include", "__pycache__")


def pack(folder: Path) -> Path:
    """Pack an environment with gregor and the libraries of its reader, of which nothing is a path to another one."""
    venv.create(folder / "packed")
    libraries = Path(sysconfig.get_path("purelib"))
    site = libraries.relative_to(sys.prefix)

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if set(LEFT_OUT) & set(Path(entry.name).parts) else entry

    archive = folder / "environment.tar.gz"  # of a .tar Spark restores no permissions
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        tar.add(folder / "packed", ".")
        for name in PACKED:
            tar.add(libraries / name, site / name, filter=kept)
        for part in (ROOT / ".links/pyspark_gregor.py", *(ROOT / ".links/gregor").iterdir()):
            tar.add(part.resolve(), site / part.relative_to(ROOT / ".links"), filter=kept)
    return archive


def without_gregor(folder: Path) -> Path:
    """Return a program that is the driver's Python for the driver, and for workers one with PyArrow alone."""
    venv.create(folder)
    libraries = Path(sysconfig.get_path("purelib"))
    for name in ("numpy", "numpy.libs", "pyarrow"):
        (folder / libraries.relative_to(sys.prefix) / name).symlink_to(libraries / name)
    program = folder / "python"
    of_worker = f'case $PWD in */work-*) exec {folder}/bin/python "$@";; esac'
    program.write_text(f'#!/bin/sh\n{of_worker}\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return program


def test_pythons_of_the_workers_are_checked(cluster: SparkCluster, topics: Topics, tmp_path: Path) -> None:
    """One without gregor, and one that travels with the job but cannot connect to a broker, then can, and reads."""
    port = topics.bootstrap.rpartition(":")[2]
    topic = topics.create(1, config={"compression.type": "lz4"})
    topics.produce(topic, ["a", "b", "c"], partition=0)
    python = without_gregor(tmp_path / "other")
    [checked, read] = check(cluster, tmp_path, str(python), "", topic, port)
    where = f"the Python {tmp_path}/other/bin/python "
    assert checked.startswith(where) and "has no gregor: install gregor[spark]" in checked
    assert read.startswith(f"ImportError: {where}on ") and read.endswith(
        "cannot load gregor (No module named 'gregor'): install gregor[spark] of the driver's version into that "
        "Python, name another with PYSPARK_PYTHON, or send a packed environment with spark.archives"
    )

    archive = pack(tmp_path)
    (tmp_path / "environment").symlink_to(sys.prefix)  # the driver's, by which it plans the read
    found = check(cluster, tmp_path, "./environment/bin/python", str(archive), topic, "9", port)
    assert "cannot connect to the bootstrap servers 127.0.0.1:9" in found[0] and "--bootstrap-server" in found[0]
    assert found[1:3] == ["fine", "a b c"]
    files = found[3].split()
    assert len(files) == 4
    assert [file for file in files if not ("/work-" in file and "/environment/lib/" in file)] == []
