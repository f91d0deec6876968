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
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gregor.config.listeners import address_text
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.installation import installed_gregor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULES = frozenset({"pyarrow", "numpy", "lz4", "snappy", "zstandard", "crc32c"})
"""The modules that the reader imports beside gregor."""
MODULES_OF_SINK = MODULES | {"pandas"}
"""Those of a sink, and of tasks that produce dead letters: PySpark passes Arrow batches to functions by pandas."""
MODULES_OF_FORMAT = {"avro": MODULES_OF_SINK | {"fastavro"}, "protobuf": MODULES_OF_SINK | {"google.protobuf"}}
"""Those of values that are decoded in Python."""
PARTS = ("config", "protocol", "storage", "spark_jobs")
"""The parts of gregor that workers run: of storage the reader imports segments and indexes."""
CONNECT_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 32
"""The largest number of addresses to which a probe connects at the same time."""
TASKS_OF_UNKNOWN_CLUSTER = 16
PACK = (
    "install gregor[spark] of the driver's version into that Python, name another with PYSPARK_PYTHON, "
    "or send a packed environment with spark.archives"
)

Address = tuple[str, int]
Addresses = Sequence[Address]
Listeners = tuple[Addresses, Addresses]
"""The addresses of a cluster: its bootstrap servers, and those that its brokers advertise."""


def require_workers(
    spark: SparkSession, clusters: Sequence[Listeners] = (), modules: Collection[str] = MODULES
) -> None:
    """Raise JobError unless the executors' Python has this gregor and the modules, and can connect to the clusters.

    There are as many tasks as the executors have cores, so that on an idle cluster each executor runs one. Workers that
    are this very Python need no check.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    tasks = _tasks(spark)
    if tasks == 0:
        return
    probe = F.udf(probe_of(clusters, modules), "string", useArrow=False)
    try:
        rows = spark.range(0, tasks, 1, tasks).select(probe("id").alias("found")).distinct().collect()
    except PySparkException as error:
        raise JobError(explained(str(error))) from error
    expected = describe((), (), ())
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


def probe_of(clusters: Sequence[Listeners] = (), modules: Collection[str] = MODULES) -> Callable[[Any], str]:
    """Return a function for tasks; as it is local, and reads no global name, it is pickled by value."""
    bootstrap = [list(one) for one, _ in clusters]
    advertised = sorted({address for _, one in clusters for address in one})
    wanted = sorted(modules)

    def probe(number: Any) -> str:
        import importlib
        import json
        import socket
        import sys

        try:
            describe = importlib.import_module("gregor.spark_jobs.launch.workers").describe
        except ImportError as error:
            missing = {"host": socket.gethostname(), "python": sys.executable, "missing": [error.name or str(error)]}
            return json.dumps(missing)
        return json.dumps(describe(bootstrap, advertised, wanted))

    return probe


def describe(bootstrap: Sequence[Addresses], advertised: Addresses, modules: Collection[str]) -> dict[str, Any]:
    """Return what this Python has: the version of gregor, missing modules, and addresses that it cannot connect to.

    `bootstrap` are the bootstrap servers of each cluster, of which one is enough.
    """
    failures = [unreachable(one) for one in bootstrap]
    return {
        "host": socket.gethostname(),
        "python": sys.executable,
        "missing": [name for name in modules if not is_installed(name)],
        "version": installed_gregor(),
        "sources": sources(),
        "no_bootstrap": [
            text for found, one in zip(failures, bootstrap, strict=True) if len(found) == len(one) for text in found
        ],
        "unreachable": unreachable(advertised),
    }


def is_installed(module: str) -> bool:
    """Return whether a module, which may be one of a package, can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of its package
        return False


def sources() -> str | None:
    """Return a digest of the modules that workers run; None if they are not in a folder."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    count = 0
    for path in sorted(path for part in PARTS for path in (root / part).rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
        count += 1
    return digest.hexdigest()[:12] if count else None


def unreachable(addresses: Addresses, timeout_s: float = CONNECT_TIMEOUT_S) -> list[str]:
    """Return the addresses that accept no connection, each with the cause. All have the timeout together, nearly."""

    def failure_of(address: Address) -> str | None:
        host, port = address
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
        except OSError as error:
            return f"{address_text(host, port)} ({error.strerror or error})"
        except UnicodeError:  # a label is empty or longer than 63 characters
            return f"{address_text(host, port)} (not the name of a host)"
        return None

    if not addresses:
        return []
    with ThreadPoolExecutor(min(len(addresses), MAX_CONNECTIONS)) as pool:
        return [text for text in pool.map(failure_of, addresses) if text is not None]


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
    if found["no_bootstrap"]:
        servers = ", ".join(found["no_bootstrap"])
        return (
            f"the worker on {found['host']} cannot connect to the bootstrap servers {servers}: give --bootstrap-server "
            "with an address that every worker reaches"
        )
    if found["unreachable"]:
        listeners = ", ".join(found["unreachable"])
        return (
            f"the worker on {found['host']} cannot connect to the advertised listeners {listeners} of the brokers: "
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
