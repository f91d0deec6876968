"""Installed for this Python: the version of gregor, and version and folder of PySpark, both without importing it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from gregor.spark_jobs.errors import JobError

HOW_TO_INSTALL_PYSPARK = "Install it with\n    pip install 'gregor[spark]'"


@cache
def installed_gregor() -> str | None:
    """Return the version of the installed gregor; None for one that is only on the path.

    It is found once in a process: the search opens Spark's archives on the path, for longer than a short task needs.
    """
    try:
        return metadata.version("gregor")
    except metadata.PackageNotFoundError:
        return None


def require_pyspark() -> None:
    """Raise JobError if PySpark is not installed for this Python."""
    if find_spec("pyspark") is None:
        raise JobError(f"PySpark is not installed. {HOW_TO_INSTALL_PYSPARK}")


def installed_spark() -> str | None:
    """Return the version of PySpark, "4.1.1"; None if there is none."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    # Under spark-submit the package is in a zip file, which only its loader can read.
    source: bytes = spec.loader.get_data(str(Path(spec.origin).with_name("version.py")))  # type: ignore[union-attr]
    found = re.search(rb"__version__[^=\n]*= *[\"']([^\"']+)", source)
    return found.group(1).decode() if found else None


def spark_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder with Spark's jars: that of PySpark, or of the Spark whose spark-submit started this process.

    Raise JobError if there is none.
    """
    spec = find_spec("pyspark")
    folders = [Path(spec.origin).parent] if spec is not None and spec.origin is not None else []
    folders += [Path(environ["SPARK_HOME"])] if environ.get("SPARK_HOME") else []
    for folder in folders:
        if (folder / "jars").is_dir():
            return folder
    raise JobError(f"PySpark is not installed, or without its jars. {HOW_TO_INSTALL_PYSPARK}")
