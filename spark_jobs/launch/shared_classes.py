"""The archive of Spark's classes, with which its JVMs start in half the time (class data sharing, JEP 310).

A JVM parses and verifies the 13,000 classes of a small session at each start. With an archive it maps them into its
memory. `gregor spark archive` makes one, for one Spark and one Java; sessions and clusters that gregor starts use it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.installation import spark_home
from gregor.spark_jobs.java import find_java
from gregor.spark_jobs.packages import cache_folder

OPTION = "-XX:SharedArchiveFile="
QUIET = "-Xlog:cds=off -Xlog:class+path=off"
"""A JVM that the archive does not fit starts without a warning on the standard output."""
UNFIT = ("-XX:+UseZGC", "-XX:+UseShenandoahGC", "-XX:-UseCompressedOops")
"""Options of a JVM whose memory no archive fits. With one it would start without the archive of the JDK, too."""


def archive_file(home: Path, java: str, cache: Path | None = None) -> Path:
    """Return the place of the archive for the jars of this Spark and this java program.

    A Spark or a Java that has been installed anew has another one: a JVM does not use an archive of other jars or of
    another build. The name begins with their folder, see `remove_earlier`.
    """
    jars = home / "jars"
    parts = _digest(str(jars)), _digest(_state(jars)), build_of(java)
    return (cache or cache_folder()) / f"classes-{'-'.join(parts)}.jsa"


def build_of(java: str) -> str:
    """Return a name for an installed build of Java. Raise OSError if there is no such program."""
    program = Path(java).resolve()
    return _digest(f"{program} {_state(program)}")


def dump_command(java: str, classes: Path, class_path: str, file: Path) -> list[str]:
    """Return the command that archives the listed classes of a class path in the file."""
    options = [f"-XX:SharedClassListFile={classes}", f"{OPTION}{file}"]
    return [java, "-Xshare:dump", "-Xlog:disable", *options, "-cp", class_path]


def settings_folder(home: Path, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of Spark's settings if it has files. It precedes the jars on the class path, and no JVM uses an
    archive behind such a folder."""
    folder = Path(environ.get("SPARK_CONF_DIR") or home / "conf")
    return folder if folder.is_dir() and any(folder.iterdir()) else None


def _state(path: Path) -> str:
    status = path.stat()
    return f"{status.st_mtime_ns} {status.st_size}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def archive_options(cache: Path | None = None) -> str:
    """Return the option of a JVM of the installed Spark that uses its archive; without one, nothing.

    It is for variables and settings of Spark that hold several options.
    """
    java = find_java()
    try:
        home = spark_home()
        file = None if java is None or settings_folder(home) else archive_file(home, java, cache)
    except (JobError, OSError):
        return ""
    if file is None or not file.exists():
        return ""
    option = f'"{OPTION}{file}"' if " " in str(file) else f"{OPTION}{file}"
    return f"{option} {QUIET}"


def combined(*options: str) -> str:
    """Return options for a variable or a setting of Spark that holds several, with the archive unless they name one, or
    settings of the memory that none fits."""
    given = " ".join(filter(None, options))
    if any(one in given for one in (OPTION, "-Xshare:", *UNFIT)):
        return given
    return " ".join(filter(None, [archive_options(), given]))


def remove_earlier(file: Path) -> None:
    """Remove the archives of jars that were in the same place before."""
    _, folder, state, _ = file.stem.split("-")
    for other in file.parent.glob(f"classes-{folder}-*.jsa"):
        if f"-{state}-" not in other.name:
            other.unlink(missing_ok=True)
