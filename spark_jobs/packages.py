"""Jars that Spark lacks, by Maven coordinates: downloaded once, then used from gregor's cache folder.

Spark can resolve packages itself (`spark.jars.packages`), but then it searches the local Maven repository first and
fails on an incomplete one (a pom without its jar), downloads 50 MB of libraries that PySpark already has, and prints
forty lines at each start. Therefore PySpark's resolver (Ivy) is run here once, with other settings: the central
repository first, the local one only as a fallback. The folder of the result exists only when it is complete.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.installation import HOW_TO_INSTALL_PYSPARK, spark_home

SCALA = "2.13"  # of all of PySpark 4
# Dependencies in the poms of packages that are already among PySpark's jars.
IN_PYSPARK = (
    "org.apache.hadoop",
    "org.slf4j",
    "org.lz4",
    "org.xerial.snappy",
    "com.google.code.findbugs",
    "org.scala-lang",
    "org.scala-lang.modules",
    "org.antlr",
    "org.apache.logging.log4j",
    "org.apache.parquet",
    "org.roaringbitmap",
    "com.github.luben",
    "commons-pool",
    "io.airlift",
)
RESOLVE_TIMEOUT_S = 300

Runner = Callable[[list[str], Path], tuple[int, str]]


@dataclass(frozen=True)
class Package:
    """An artifact with all that it depends on, except what PySpark has."""

    title: str
    """The name in messages."""
    group: str
    artifact: str
    version: str
    provides: str
    """A class that Spark has only with the package."""

    @property
    def coordinate(self) -> str:
        """Return the coordinate that `spark-submit --packages` accepts."""
        return f"{self.group}:{self.artifact}:{self.version}"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder where downloaded jars are kept between runs."""
    base = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gregor"


def package_folder(package: Package, cache: Path | None = None) -> Path:
    """Return the folder of a package's jars; if it exists, it is complete."""
    return (cache or cache_folder()) / f"{package.artifact}-{package.version}"


def package_jars(package: Package, java: str, cache: Path | None = None, run: Runner | None = None) -> list[Path]:
    """Return the jars of a package, downloaded with the given Java if they are missing.

    Several processes may call this at once. Raise JobError, with the cause of the resolver, if the download fails.
    """
    folder = package_folder(package, cache)
    if not folder.is_dir():
        _download(package, java, folder, run or _run)
    return sorted(folder.glob("*.jar"))


def _download(package: Package, java: str, folder: Path, run: Runner) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="package-", dir=folder.parent))
    except OSError as error:
        raise JobError(
            f"cannot store {package.title} in {folder.parent}: {error.strerror}; "
            "set XDG_CACHE_HOME to use another folder"
        ) from error
    try:
        (scratch / "settings.xml").write_text(_settings(os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")))
        (scratch / "ivy.xml").write_text(_module(package))
        pattern = "jars/[artifact]-[revision].[ext]"
        command = [java, "-jar", _ivy_jar(), "-settings", "settings.xml", "-ivy", "ivy.xml", "-cache", "cache"]
        command += ["-confs", "default", "-types", "jar", "-retrieve", pattern]
        code, output = run(command, scratch)
        if code != 0 or not any((scratch / "jars").glob(f"{package.artifact}-*.jar")):
            raise JobError(_failure(package, folder, output))
        try:
            (scratch / "jars").rename(folder)  # atomic: the folder is complete, or does not exist
        except OSError:
            if not folder.is_dir():  # else another process has stored the same jars
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(command: list[str], folder: Path) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=RESOLVE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return 1, f"no answer within {RESOLVE_TIMEOUT_S} s"
    return done.returncode, done.stdout + done.stderr


def _ivy_jar() -> str:
    found = sorted(spark_home().glob("jars/ivy-*.jar"))
    if not found:
        raise JobError(f"PySpark is not installed, or without its jars. {HOW_TO_INSTALL_PYSPARK}")
    return str(found[-1])


def _settings(repository: str | None) -> str:
    """Return Ivy's settings; without a repository, Ivy's default for Maven layouts is the central one."""
    root = f" root={quoteattr(repository)}" if repository else ""
    return (
        '<ivysettings><settings defaultResolver="all"/><resolvers><chain name="all" returnFirst="true">'
        f'<ibiblio name="central" m2compatible="true"{root}/>'
        '<ibiblio name="local" m2compatible="true" root="file:${user.home}/.m2/repository"/>'
        "</chain></resolvers></ivysettings>"
    )


def _module(package: Package) -> str:
    excludes = "".join(f"<exclude org={quoteattr(group)}/>" for group in IN_PYSPARK)
    excludes += f'<exclude org="org.apache.spark" module="spark-tags_{SCALA}"/>'
    return (
        '<ivy-module version="2.0"><info organisation="gregor" module="spark-package"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        f"<dependency org={quoteattr(package.group)} name={quoteattr(package.artifact)} "
        f'rev={quoteattr(package.version)} conf="default->compile,runtime,master"/>'
        f"{excludes}</dependencies></ivy-module>"
    )


def _failure(package: Package, folder: Path, output: str) -> str:
    """Return the error text, with the lines of Ivy's report that have a cause."""
    words = ("not found", "error", "failed", "refused", "timed out", "no answer", "exception", "unknownhost")
    reasons: list[str] = []
    for line in output.splitlines():
        text = line.strip(" :\t")
        if " " in text and any(word in text.lower() for word in words) and text not in reasons:
            reasons.append(text)
    reasons.sort(key=lambda text: "exception" not in text.lower())  # causes before consequences
    listed = "\n".join(f"    {reason}" for reason in reasons[:6] or output.strip().splitlines()[-3:])
    return (
        f"{package.title} ({package.coordinate}) could not be downloaded:\n{listed}\n"
        "Check the network (JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=... -Dhttps.proxyPort=...' names a proxy,\n"
        "DEFAULT_ARTIFACT_REPOSITORY another repository), or let Spark download it:\n"
        f"    spark-submit --packages {package.coordinate} ...\n"
        f"or copy its jars from another machine into {folder}"
    )
