"""Findings about a worker's Python, and the line about each fault. On a cluster: test_spark_cluster.py."""

import json
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from pyspark import cloudpickle

from gregor.spark_jobs.launch.workers import describe, explained, probe_of, problem_of, unreachable

FOUND = {
    "host": "node7",
    "python": "/opt/python",
    "missing": [],
    "version": "0.1.0",
    "sources": "abc",
    "unreachable": [],
}


def test_this_python_can_run_what_it_sends() -> None:
    assert problem_of(json.loads(probe_of(())(0)), describe(())) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"missing": ["pyarrow"]}, "/opt/python of the worker on node7 has no pyarrow: install gregor"),
        ({"version": "0.0.9"}, "has gregor 0.0.9, and the driver 0.1.0: install gregor"),
        ({"sources": "def"}, "has another build of gregor 0.1.0 (sources def) than the driver (abc)"),
        ({"unreachable": ["b:1 (refused)"]}, "node7 cannot connect to the brokers' listeners b:1 (refused): set adv"),
    ],
)
def test_each_fault_is_one_line_with_the_remedy(change: dict[str, object], words: str) -> None:
    line = problem_of(FOUND | change, FOUND)
    assert line is not None and words in line and "\n" not in line


def test_unknown_versions_are_not_compared() -> None:
    assert problem_of(FOUND | {"version": None, "sources": None}, FOUND) is None


def test_addresses_that_refuse_are_named_with_the_cause() -> None:
    with socket.socket() as listening, socket.socket() as bound:
        for one in (listening, bound):
            one.bind(("127.0.0.1", 0))
        listening.listen()
        good, refused = listening.getsockname()[1], bound.getsockname()[1]
        assert unreachable([("127.0.0.1", good), ("127.0.0.1", refused)]) == [
            f"127.0.0.1:{refused} (Connection refused)"
        ]


@pytest.mark.slow
def test_probe_runs_where_gregor_is_missing(tmp_path: Path) -> None:
    """It is sent by value; plain pickle in an empty environment stands for the worker, which has only PySpark's."""
    venv.create(tmp_path / "empty")
    pickled = tmp_path / "probe"
    pickled.write_bytes(cloudpickle.dumps(probe_of([("127.0.0.1", 1)])))
    library = Path(cloudpickle.__file__).parents[2]
    program = (
        f"import sys, types; pyspark = types.ModuleType('pyspark'); pyspark.__path__ = [{str(library / 'pyspark')!r}];"
        "sys.modules['pyspark'] = pyspark; import pickle;"
        f"print(pickle.loads(open({str(pickled)!r}, 'rb').read())(0))"
    )
    python = tmp_path / "empty" / "bin" / "python"
    done = subprocess.run([python, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    line = problem_of(json.loads(done.stdout), describe(()))
    assert line is not None and f"{python} of the worker on {socket.gethostname()} has no gregor" in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('java.io.IOException: Cannot run program "/no/python": error=2', "cannot start its Python /no/python"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, x",
            "3.9 in",
        ),
        ("first\n  last cause", "failed: last cause"),
    ],
)
def test_failure_of_the_check_itself_is_explained(text: str, words: str) -> None:
    assert words in explained(text)
    assert "\n" not in explained(text)


def test_worker_paths_are_those_of_the_driver() -> None:
    assert describe(())["python"] == sys.executable
