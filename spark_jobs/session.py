"""A Spark session that can read and write topics, started directly or under spark-submit.

Settings of the caller of spark-submit (or of spark-defaults.conf) are kept; only missing ones are set here:

* the Kafka connector and the packages of the job, unless their classes are already loaded (`--packages`, `--jars`);
* on a local master, shuffle partitions = cores (Spark's 200 are fixed in a checkpoint and make each small batch last
  seconds), and the driver on 127.0.0.1, so that a host name that cannot be resolved does no harm;
* passwords, tokens and JAAS configurations are redacted in plans, web pages and event logs;
* no web page, no progress bar, and a quiet log.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.connector import PROVIDER_CLASS, connector_package
from gregor.spark_jobs.errors import JobError, reason
from gregor.spark_jobs.installation import installed_spark
from gregor.spark_jobs.installation import require_pyspark as require_pyspark
from gregor.spark_jobs.java import require_java
from gregor.spark_jobs.launch.shared_classes import combined
from gregor.spark_jobs.packages import Package, package_jars

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

# The connectors of Spark 4.1 end a restarted query with a NullPointerException after its first batch, if that batch had
# been planned before the restart (SPARK-57438, repaired in 4.2.0). Their older reader of streams has the same options,
# checkpoints and results; only the metrics of the lag are missing in the progress.
READER_OF_STREAMS = {"4.1": {"spark.sql.streaming.disabledV2MicroBatchReaders": PROVIDER_CLASS}}
# For a job of seconds: the optimising compiler and a parallel collector cost twice the time that they save.
SHORT_JOB = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Spark's own expression knows passwords and tokens by their names; a JAAS configuration has the password in its value.
SECRET_NAMES = r"secret|password|passwd|token|credential|access[.]?key|api[.]?key|private[.]?key|jaas[.]?config"
REDACTION = {
    "spark.redaction.regex": f"(?i){SECRET_NAMES}",  # settings and options of sources, by name
    # Options in the text of a plan, up to the comma or the bracket that ends them.
    "spark.redaction.string.regex": rf"(?i)\"?[\w.-]*(?:{SECRET_NAMES})[\w.-]*\"?\s*(?:->|[=:])\s*"
    r"(?:\"(?:[^\"\\]|\\.)*\"|[^,)\]}\"\n])+",
}
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
UNDER_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which has started the JVM: its port


def open_session(
    app_name: str,
    settings: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    jvm_options: str = "",
    packages: Iterable[Package] = (),
) -> SparkSession:
    """Return the session of this process, with the connector and the packages.

    The `settings` have precedence over all other settings. If this process starts the JVM, the JVM has the
    `jvm_options`, and its error stream (its log) is written to `log_file`. The caller stops the session. Raise JobError
    if Java, PySpark or a package is missing.

    With the setting `spark.remote`, or SPARK_REMOTE, the session is one of Spark Connect: no JVM is started, and the
    connector and the packages are those of the server.
    """
    require_pyspark()
    remote = remote_server(settings or {})
    if remote is not None:
        return _connected(remote, app_name, settings or {})
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    given = SparkConf(loadDefaults=False).setAll(list((settings or {}).items()))
    jvm = _started_jvm(given, log_file, jvm_options)
    connector = [] if has_class(jvm, PROVIDER_CLASS) else [connector_package()]
    jars = [jar for package in (*connector, *packages) for jar in _load(jvm, package)]
    conf = SparkConf()  # includes the settings of spark-submit and spark-defaults.conf
    conf.setAll(given.getAll())
    defaults = default_settings(conf.get("spark.master") or "local[*]")
    for key, value in (defaults | REDACTION | reader_of_streams(installed_spark() or "")).items():
        conf.setIfMissing(key, value)
    if UNDER_SPARK_SUBMIT not in os.environ:
        conf.set("spark.ui.showConsoleProgress", "false")  # on by default in the shell, which this process resembles
    if jars:
        conf.set("spark.jars", ",".join(filter(None, [conf.get("spark.jars"), *jars])))
    if SparkContext._active_spark_context is None:
        conf.setAppName(app_name)
    master = conf.get("spark.master") or "local[*]"
    if options := executor_options(master, conf.get(EXECUTOR_OPTIONS) or ""):
        conf.set(EXECUTOR_OPTIONS, options)
    same_machine = is_on_this_machine(master)
    with _variables({"PYSPARK_PYTHON": sys.executable} if same_machine else {}):  # the Python of the workers
        try:
            return SparkSession.builder.config(conf=conf).getOrCreate()
        except Py4JError as error:
            raise JobError(
                f"Spark has no session with the master {master}: {reason(error)}\n"
                "Check that its cluster runs, and that its address is right (--master or spark.master)"
            ) from error


def executor_options(master: str, given: str) -> str:
    """Return the options of the executors' JVMs: the given ones, and the archive of classes in a cluster here."""
    return combined(given) if is_on_this_machine(master) and local_cores(master) is None else given


def remote_server(settings: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the address of the server of Spark Connect, `sc://host:port`; None without one."""
    return settings.get("spark.remote") or environ.get("SPARK_REMOTE") or None


def _connected(remote: str, app_name: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if not remote.startswith("sc://"):
        raise JobError(f"{remote!r} is not the address of a Spark Connect server; give sc://HOST[:PORT]")
    builder = SparkSession.builder.remote(remote).appName(app_name)
    for key, value in settings.items():
        if key != "spark.remote":
            builder = builder.config(key, value)
    try:
        return with_reader_of_streams(builder.getOrCreate())
    except (ImportError, PySparkException) as error:  # PySpark names a missing package in an ImportError of its own
        first = str(error).strip().partition("\n")[0]
        raise JobError(
            f"no session on the Spark Connect server {remote}: {first}\n"
            "Check that the server runs, and that its client is here: "
            f"pip install 'pyspark[connect]=={installed_spark()}'"
        ) from error


def require_no_connect(settings: Mapping[str, str], program: str, reason: str) -> None:
    """Raise JobError with the reason if a session with these settings is one of Spark Connect."""
    remote = remote_server(settings)
    if remote is not None:
        raise JobError(
            f"{program} does not run through Spark Connect ({remote}): {reason}.\n"
            "Give the cluster itself with --master, or run it with spark-submit; unset SPARK_REMOTE if it is set."
        )


def default_settings(master: str) -> dict[str, str]:
    """Return the default settings of a session, by the kind of master."""
    settings = {"spark.ui.enabled": "false"}
    cores = local_cores(master)
    if cores is not None:
        settings["spark.sql.shuffle.partitions"] = str(cores)
    if is_on_this_machine(master):
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
    return settings


def is_on_this_machine(master: str) -> bool:
    """Return whether all executors are here: those of a local master, or of a cluster that listens on the loopback."""
    return local_cores(master) is not None or re.match(r"spark://(127\.\d+\.\d+\.\d+|localhost):", master) is not None


def reader_of_streams(spark: str) -> dict[str, str]:
    """Return the settings that a version of Spark needs for a connector that restarts its queries."""
    return READER_OF_STREAMS.get(".".join(spark.split(".")[:2]), {})


def with_reader_of_streams(spark: SparkSession) -> SparkSession:
    """Return a session of Spark Connect with the settings that the version of its server needs, where it has none."""
    for key, value in reader_of_streams(spark.version).items():
        if not spark.conf.get(key, None):
            spark.conf.set(key, value)
    return spark


def local_cores(master: str) -> int | None:
    """Return the number of cores of a local master; None for a cluster."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?])?", master)
    if match is None:
        return None
    if match.group(1) == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(match.group(1) or 1))


def _started_jvm(given: SparkConf, log_file: Path | None, jvm_options: str) -> Any:
    """Return the JVM of this process: that of spark-submit, that of an earlier session, or a new one.

    A new one has the settings on its command line, as some (`spark.driver.memory`) have an effect only there.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if UNDER_SPARK_SUBMIT in os.environ:
        SparkContext._ensure_initialized()
        _quieten(SparkContext._jvm)
    elif SparkContext._gateway is None:
        require_java()
        try:
            master = given.get("spark.master") or "local[*]"
            with launch_environment(jvm_options, master), _stderr(log_file) as popen_arguments:
                SparkContext._ensure_initialized(gateway=launch_gateway(given, popen_arguments))
        except PySparkRuntimeError as error:
            where = f"its log is in {log_file}" if log_file else "the cause is above"
            raise JobError(f"Spark's Java process ended before it answered; {where}.") from error
    return SparkContext._jvm


@contextmanager
def launch_environment(jvm_options: str = "", master: str = "local[*]") -> Iterator[None]:
    """Set variables of the launch scripts during the launch, where the user has not set them."""
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    additions = {"PYSPARK_PYTHON": sys.executable}
    options = [jvm_options, os.environ.get("SPARK_SUBMIT_OPTS", "")]  # the last of several wins
    if "log4j" not in options[1] and not _conf_folder_has_log_settings():
        options.append(f"-Dlog4j2.configurationFile={log_settings}")
    if all_options := combined(*options):
        additions["SPARK_SUBMIT_OPTS"] = all_options
    if is_on_this_machine(master) and "--master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        additions["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _variables(additions):
        yield


@contextmanager
def _variables(additions: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that are not set, and SPARK_SUBMIT_OPTS in any case, during the block."""
    saved = {key: os.environ.get(key) for key in additions}
    for key, value in additions.items():
        if key == "SPARK_SUBMIT_OPTS" or not saved[key]:
            os.environ[key] = value
    try:
        yield
    finally:
        for key, old in saved.items():
            if old is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = old


@contextmanager
def _stderr(log_file: Path | None) -> Iterator[dict[str, Any]]:
    if log_file is None:
        yield {}
    else:
        with log_file.open("ab") as stream:
            yield {"stderr": stream}


def _quieten(jvm: Any) -> None:
    """Suppress Spark's default log lines for each step of each task, unless the user has log settings."""
    if jvm.java.lang.System.getProperty("log4j2.configurationFile") or _conf_folder_has_log_settings():
        return
    # spark-submit resets its logging before it runs the job, and the first Spark class that logs loads it again. Load
    # it now, as it would otherwise undo the level set here.
    jvm.org.apache.spark.SparkConf().initializeLogIfNecessary(False, False)
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setRootLevel(log4j.Level.WARN)


def _conf_folder_has_log_settings() -> bool:
    folder = Path(os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", os.devnull), "conf"))
    return any((folder / f"log4j2.{kind}").exists() for kind in ("properties", "xml", "yaml", "json"))


def add_packages(spark: SparkSession, packages: Iterable[Package]) -> None:
    """Add packages to a session that runs already, for its driver and its executors.

    A package whose settings Spark reads only at the start of a session (`spark.sql.extensions`) is given to
    `open_session`.
    """
    for package in packages:
        for jar in _load(spark._jvm, package):
            spark._jsc.addJar(jar)


def _load(jvm: Any, package: Package) -> list[str]:
    """Load a package's classes into the driver; return its jars for executors, none if Spark has it already.

    The class loader is the one to which spark-submit adds jars. It accepts jars after the start of the JVM, so that a
    plain `spark-submit job.py` needs no `--packages`.
    """
    if has_class(jvm, package.provides):
        return []
    jars = package_jars(package, os.path.join(jvm.java.lang.System.getProperty("java.home"), "bin", "java"))
    loader = _loader(jvm)
    for jar in jars:
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    return [str(jar) for jar in jars]


def _loader(jvm: Any) -> Any:
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def has_class(jvm: Any, name: str) -> bool:
    """Return whether a session, with the packages that were added to it, has a Java class."""
    from py4j.protocol import Py4JJavaError

    try:
        jvm.java.lang.Class.forName(name, False, _loader(jvm))
    except Py4JJavaError:
        return False
    return True
