"""The module in which Spark finds the data source: everyone's sessions import it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gregor.spark_jobs.pyspark_gregor import DefaultSource

PROGRAM = """
import json, sys
from pyspark.sql import datasource
before = set(sys.modules)
import pyspark_gregor
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def test_it_imports_nothing_but_the_interface_of_sources() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["pyspark_gregor"]


@pytest.mark.parametrize("missing", ["gregor.spark_jobs.source.datasource", "gregor.spark_jobs.source.stream"])
def test_a_python_without_gregor_or_a_part_of_it_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delitem(sys.modules, "gregor.spark_jobs.source.datasource", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    source = DefaultSource({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"})
    for action in (source.schema, lambda: source.reader(None), lambda: source.streamReader(None)):
        with pytest.raises(ImportError) as raised:
            action()
        assert "\n" not in str(raised.value)
        assert str(raised.value).startswith(f'format("gregor") cannot be loaded by the Python {sys.executable} on ')
        assert f"{missing}" in str(raised.value)
        assert "install gregor[spark] of the driver's version into that Python" in str(raised.value)
