"""The module in which Spark finds the data source: everyone's sessions import it."""

import json
import subprocess
import sys

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
