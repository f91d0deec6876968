"""The archive of Spark's classes, with which its JVMs start in half the time (class data sharing, JEP 310).

A JVM parses and verifies the 13,000 classes of a small session at each start. With an archive it maps them into its
memory. `gregor spark archive` makes one, for one Spark and one Java; sessions and clusters that gregor starts use it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.installation import spark_home
from gregor.spark_jobs.java import find_java
from gregor.spark_jobs.packages import cache_folder

OPTION = "-XX:SharedArchiveFile="


def archive_file(home: Path, java: str, cache: Path | None = None) -> Path:
    """Return the place of the archive for the jars of this Spark and this java program.

    A Spark or a Java that has been installed anew has another one: a JVM does not use an archive of other jars or of
    another build.
    """
    return (cache or cache_folder()) / f"classes-{_digest(home / 'jars')}-{_digest(Path(java).resolve())}.jsa"


def _digest(path: Path) -> str:
    status = path.stat()
    return hashlib.sha256(f"{path} {status.st_mtime_ns} {status.st_size}".encode()).hexdigest()[:10]


def archive_options(cache: Path | None = None) -> str:
    """Return the option of a JVM of the installed Spark that uses its archive; without one, nothing.

    It is for variables and settings of Spark that hold several options. A JVM with another class path or other settings
    of its memory, which the archive does not fit, starts without it.
    """
    java = find_java()
    try:
        file = archive_file(spark_home(), java, cache) if java is not None else None
    except (JobError, OSError):
        return ""
    if file is None or not file.exists():
        return ""
    return f'"{OPTION}{file}"' if " " in str(file) else f"{OPTION}{file}"


def is_archive_given(options: str) -> bool:
    """Return whether options of a JVM name an archive already."""
    return OPTION in options or "-Xshare:" in options


def combined(*options: str) -> str:
    """Return options for a variable or a setting of Spark that holds several, with the archive unless they name one."""
    given = " ".join(filter(None, options))
    return given if is_archive_given(given) else " ".join(filter(None, [archive_options(), given]))


def remove_earlier(file: Path) -> None:
    """Remove the archives of the same Spark that fit another Java, or another build of it."""
    _, spark, _ = file.stem.split("-")
    for other in file.parent.glob(f"classes-{spark}-*.jsa"):
        if other != file:
            other.unlink(missing_ok=True)
