"""Options of JVMs that start fast and lie light beside others: for tests, not for measurements.

A JVM parses and verifies thousands of classes at each start, more than half of the work of a tool or of a broker until
it has started. With an archive of these classes (class data sharing, JEP 310 and 350) it maps them into its memory.
`python -m tests.support.class_archives` makes the archives; without them everything runs, only slower.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from gregor.spark_jobs.launch.shared_classes import OPTION, QUIET, build_of

SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def class_path(folders: Sequence[Path]) -> str:
    """Return the class path of all jars in the folders."""
    return os.pathsep.join(f"{folder}/*" for folder in folders)


def archive_file(folders: Sequence[Path]) -> Path:
    """Return the place of the archive for the class path of these folders and the java program of the PATH."""
    return folders[-1] / f"classes-{_build()}.jsa"


@functools.cache
def _build() -> str:
    java = shutil.which("java")
    return "none" if java is None else build_of(java)


def small_jvm(*folders: Path, heap_mb: int = 256) -> list[str]:
    """Return the options of a JVM whose class path begins with the jars in the folders.

    A JVM that the archive does not fit, such as one of another version, runs without it.
    """
    options = [f"-Xmx{heap_mb}M", *SMALL]
    archive = archive_file(folders)
    if archive.exists():
        options += [f"{OPTION}{archive}", *QUIET.split()]
    return options
