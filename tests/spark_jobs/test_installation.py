"""Version and folder of PySpark, as a package and in the zip file of spark-submit; version of gregor."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pyspark
import pytest

from gregor.spark_jobs import installation
from gregor.spark_jobs.errors import JobError

FOLDER = Path(pyspark.__path__[0])


def test_version_and_folder_of_the_package() -> None:
    assert installation.installed_spark() == pyspark.__version__
    assert installation.spark_home({}) == FOLDER


def test_gregor_that_is_only_on_the_path_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    find = installation.installed_gregor.__wrapped__
    monkeypatch.setattr(metadata, "version", {"gregor": "9.9"}.__getitem__)
    assert find() == "9.9"

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert find() is None


def test_missing_package_is_reported_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    assert installation.installed_spark() is None
    for required in (installation.require_pyspark, lambda: installation.spark_home({})):
        with pytest.raises(JobError, match=r"pip install 'gregor\[spark\]'"):
            required()


@pytest.mark.slow
def test_version_and_folder_under_spark_submit() -> None:
    """It puts a zip file of the package at the head of the path, and sets SPARK_HOME."""
    program = (
        "from gregor.spark_jobs.installation import installed_spark, spark_home;"
        "import importlib.util; print(importlib.util.find_spec('pyspark').origin);"
        "print(installed_spark(), spark_home())"
    )
    environment = {**os.environ, "PYTHONPATH": str(FOLDER / "python/lib/pyspark.zip"), "SPARK_HOME": str(FOLDER)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    origin, found = done.stdout.splitlines()
    assert "pyspark.zip" in origin
    assert found == f"{pyspark.__version__} {FOLDER}"
