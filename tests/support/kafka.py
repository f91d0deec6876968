"""Apache Kafka's own jars: the judge of formats and of behaviour. Only tests marked `jvm` need them."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess

import pytest

from tests.support.jvm import class_path, small_jvm
from tests.support.processes import ROOT

RELEASES = (
    *("4.4.0", "4.3.1", "3.9.1", "2.8.2", "2.0.0", "1.1.1"),
    *("0.11.0.3", "0.10.2.2", "0.10.0.1", "0.9.0.1", "0.8.2.2"),
)
"""All that some test uses. `python -m tests.support.kafka` fetches them."""
CLIENTS_ALONE = ("4.4.0",)
"""Of these releases the tools are not published."""
STREAMS_RELEASES = ("2.8.2", "0.10.2.2")
FIRST_WITH_TOOLS_APART = (3,)
QUIET_LOG4J = "Configuration:\n  Loggers:\n    Root: {level: 'OFF'}\n"


@functools.cache
def kafka_jars(version: str = "4.3.1") -> pathlib.Path:
    """The folder with the jars of that Apache Kafka release, fetched by Maven on first use.

    GREGOR_KAFKA_JARS may name a folder that already holds `kafka-<version>/`.
    """
    release = tuple(map(int, version.split(".")))
    if version in CLIENTS_ALONE:
        pom = "kafka-clients-pom.xml"
    else:
        pom = "kafka-pom.xml" if release >= FIRST_WITH_TOOLS_APART else "kafka-old-pom.xml"
    return _fetched("kafka", version, pom, f"-Dscala.version={'2.11' if release < (0, 10, 1) else '2.12'}")


@functools.cache
def streams_jars(version: str) -> pathlib.Path:
    """The folder with the jars of Kafka Streams of a release before 3.0; of later ones `kafka_jars` has them."""
    return _fetched("streams", version, "kafka-streams-pom.xml")


def _fetched(kind: str, version: str, pom: str, *flags: str) -> pathlib.Path:
    base = pathlib.Path(os.environ.get("GREGOR_KAFKA_JARS", ROOT / ".cache"))
    folder = base / f"{kind}-{version}"
    if any(folder.glob("kafka-clients-*.jar")):
        return folder
    if shutil.which("mvn") is None:
        pytest.skip("needs Maven to fetch Apache Kafka's jars: apt-get install maven")
    partial = base / f"{kind}-{version}.partial"
    subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(ROOT / "tests/support" / pom)),
            # A repository of its own: a half-filled default one makes Ivy, and with it Spark, fail.
            f"-Dmaven.repo.local={ROOT / '.cache/maven'}",
            f"-Dkafka.version={version}",
            *flags,
            *("dependency:copy-dependencies", f"-DoutputDirectory={partial}"),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    partial.rename(folder)
    return folder


def java_command(
    main_class: str,
    *arguments: str,
    heap_mb: int = 256,
    version: str = "4.3.1",
    jars: pathlib.Path | None = None,
) -> list[str]:
    """The command line that runs a main class of those jars, e.g. org.apache.kafka.tools.TopicCommand.

    `jars` is a folder to use instead of that of the release.
    """
    if shutil.which("java") is None:
        pytest.skip("needs a JDK: apt-get install default-jdk-headless")
    jars = jars or kafka_jars(version)
    quiet = jars / "quiet-log4j2.yaml"
    if not quiet.exists():
        quiet.write_text(QUIET_LOG4J)
    options = [*small_jvm(jars, heap_mb=heap_mb), f"-Dlog4j2.configurationFile={quiet}"]
    return ["java", *options, "-cp", class_path([jars]), main_class, *arguments]


def run_kafka_tool(
    main_class: str, *arguments: str, stdin: str = "", timeout_s: float = 180, version: str = "4.3.1"
) -> str:
    """Runs one of Apache Kafka's tools to its end and returns what it printed; a non-zero exit fails the test."""
    command = java_command(main_class, *arguments, version=version)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{main_class} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    for name in RELEASES:
        print(kafka_jars(name))
    for name in STREAMS_RELEASES:
        print(streams_jars(name))
