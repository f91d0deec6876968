"""The minor versions of Spark beside the usual one: a round of the other tests with each; `make spark-lines` alone."""

import re
import subprocess
from pathlib import Path

import pytest

from gregor.spark_jobs.connector import CONNECTORS, USUAL_SPARK
from tests.support.spark_lines import LINES, ROUND, python_with_spark, run_round


def test_each_supported_line_is_the_usual_one_or_has_a_round() -> None:
    assert {version.rpartition(".")[0] for version in (*LINES, USUAL_SPARK)} == set(CONNECTORS)


@pytest.mark.very_slow
@pytest.mark.jvm
@pytest.mark.compat
@pytest.mark.by_day(2, group="other sessions of Spark")
@pytest.mark.parametrize("version", LINES)
def test_round_with_another_line_of_spark(version: str, tmp_path: Path) -> None:
    show = "import pyspark, gregor.spark_jobs.connector as c; print(pyspark.__version__, c.connector_version())"
    python = str(python_with_spark(version))
    shown = subprocess.run([python, "-c", show], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.split() == [version, CONNECTORS[version.rpartition(".")[0]]]
    done = run_round(version, tmp_path / "round")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{len(ROUND)} passed", done.stdout, re.MULTILINE), done.stdout
