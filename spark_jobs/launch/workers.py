"""A check of the Python that Spark's workers run, before a query that needs gregor there.

`require_workers` runs a few lines in tasks on the executors. They are sent by value, so that they also run where gregor
is missing, and what they find is compared with the driver. A failure is one line with the remedy.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import socket
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULES = ("pyarrow", "numpy", "lz4", "snappy", "zstandard", "crc32c")
"""The modules that the reader imports beside gregor."""
PARTS = ("config", "protocol", "spark_jobs")
"""The parts of gregor that workers run."""
CONNECT_TIMEOUT_S = 10.0
TASKS_OF_UNKNOWN_CLUSTER = 16
PACK = (
    "install gregor[spark] of the driver's version into that Python, name another with PYSPARK_PYTHON, "
    "or send a packed environment with spark.archives"
)

Address = tuple[str, int]


def require_workers(spark: SparkSession, addresses: Sequence[Address] = ()) -> None:
    """Raise JobError unless the executors' Python has this gregor and can connect to the addresses.

    The addresses are the advertised listeners of the brokers. There are as many tasks as the executors have cores, so
    that on an idle cluster each executor runs one. Workers that are this very Python need no check.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    tasks = _tasks(spark)
    if tasks == 0:
        return
    probe = F.udf(probe_of(addresses), "string", useArrow=False)
    try:
        rows = spark.range(0, tasks, 1, tasks).select(probe("id").alias("found")).distinct().collect()
    except PySparkException as error:
        raise JobError(explained(str(error))) from error
    expected = describe(())
    for row in rows:
        problem = problem_of(json.loads(row["found"]), expected)
        if problem is not None:
            raise JobError(problem)


def _tasks(spark: SparkSession) -> int:
    """Return the number of tasks that reach every executor; 0 if the executors run this very Python."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        return TASKS_OF_UNKNOWN_CLUSTER
    context = spark.sparkContext
    if str(context.master).startswith("local") and context.pythonExec == sys.executable:
        return 0
    return context.defaultParallelism


def probe_of(addresses: Sequence[Address]) -> Callable[[Any], str]:
    """Return a function for tasks; as it is local, and reads no global name, it is pickled by value."""
    wanted = list(addresses)

    def probe(number: Any) -> str:
        import json
        import socket
        import sys

        try:
            from gregor.spark_jobs.launch.workers import describe
        except ImportError as error:
            missing = {"host": socket.gethostname(), "python": sys.executable, "missing": [error.name or str(error)]}
            return json.dumps(missing)
        return json.dumps(describe(wanted))

    return probe


def describe(addresses: Sequence[Address]) -> dict[str, Any]:
    """Return what this Python has: the version of gregor, missing modules, and addresses that it cannot connect to."""
    return {
        "host": socket.gethostname(),
        "python": sys.executable,
        "missing": [name for name in MODULES if importlib.util.find_spec(name) is None],
        "version": version(),
        "sources": sources(),
        "unreachable": unreachable(addresses),
    }


def version() -> str | None:
    """Return the version of the installed gregor; None for one that is only on the path."""
    try:
        return metadata.version("gregor")
    except metadata.PackageNotFoundError:
        return None


def sources() -> str | None:
    """Return a digest of the modules that workers run; None if they are not in a folder."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    count = 0
    for path in sorted(path for part in PARTS for path in (root / part).rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
        count += 1
    return digest.hexdigest()[:12] if count else None


def unreachable(addresses: Sequence[Address], timeout_s: float = CONNECT_TIMEOUT_S) -> list[str]:
    """Return the addresses that accept no connection, each with the cause."""
    failures = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
        except OSError as error:
            failures.append(f"{host}:{port} ({error.strerror or error})")
    return failures


def problem_of(found: dict[str, Any], expected: dict[str, Any]) -> str | None:
    """Return the line about a worker that cannot run the query; None if it can."""
    where = f"{found['python']} of the worker on {found['host']}"
    if found["missing"]:
        names = ", ".join(found["missing"])
        return f"the Python {where} has no {names}: {PACK}"
    if found["version"] != expected["version"] and None not in (found["version"], expected["version"]):
        return f"the Python {where} has gregor {found['version']}, and the driver {expected['version']}: {PACK}"
    if found["sources"] != expected["sources"] and None not in (found["sources"], expected["sources"]):
        return (
            f"the Python {where} has another build of gregor {found['version']} (sources {found['sources']}) "
            f"than the driver ({expected['sources']}): {PACK}"
        )
    if found["unreachable"]:
        listeners = ", ".join(found["unreachable"])
        return (
            f"the worker on {found['host']} cannot connect to the brokers' listeners {listeners}: "
            "set advertised.listeners of each broker to an address that every worker reaches"
        )
    return None


def explained(text: str) -> str:
    """Return the line about a check that no worker could run, from the error of Spark."""
    program = re.search(r'Cannot run program "([^"]+)"', text)
    if program is not None:
        return (
            f"a worker cannot start its Python {program.group(1)}, which is not there: name one that every worker has "
            "with PYSPARK_PYTHON, or send a packed environment with spark.archives"
        )
    versions = re.search(r"Python in worker has different version:? (\S+) than that in driver:? (\S+?)[,\s]", text)
    if "PYTHON_VERSION_MISMATCH" in text or versions is not None:
        found = f"{versions.group(1)} instead of {versions.group(2)}" if versions else "another minor version"
        return f"the workers have Python {found}: name one of the driver's minor version with PYSPARK_PYTHON"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"the check of the workers' Python failed: {lines[-1] if lines else 'no reason was given'}"
