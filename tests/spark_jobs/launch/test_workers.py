"""Findings about a worker's Python, and the line about each fault. On a cluster: test_spark_cluster.py."""

import json
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from pyspark import cloudpickle

from gregor.spark_jobs.client.listeners import Listeners, listeners_of
from gregor.spark_jobs.jobs.common.job import check_workers
from gregor.spark_jobs.jobs.common.options import Options
from gregor.spark_jobs.jobs.common.values import ValueOptions
from gregor.spark_jobs.jobs.files_to_topic import Options as FilesOptions
from gregor.spark_jobs.jobs.generate import Options as GenerateOptions
from gregor.spark_jobs.launch.workers import (
    MODULES,
    PARTS,
    describe,
    explained,
    is_installed,
    probe_of,
    problem_of,
    unreachable,
)
from tests.support.processes import BrokerProcess, free_port

FOUND = {
    "host": "node7",
    "python": "/opt/python",
    "missing": [],
    "version": "0.1.0",
    "sources": "abc",
    "no_bootstrap": [],
    "unreachable": [],
}
NOTHING = describe((), (), ())


def test_this_python_can_run_what_it_sends() -> None:
    assert problem_of(json.loads(probe_of()(0)), NOTHING) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"missing": ["pyarrow"]}, "/opt/python of the worker on node7 has no pyarrow: install gregor"),
        ({"version": "0.0.9"}, "has gregor 0.0.9, and the driver 0.1.0: install gregor"),
        ({"sources": "def"}, "has another build of gregor 0.1.0 (sources def) than the driver (abc)"),
        (
            {"no_bootstrap": ["b:1 (refused)"]},
            "cannot connect to the bootstrap servers b:1 (refused): give --b",
        ),
        ({"unreachable": ["b:1 (refused)"]}, "to the advertised listeners b:1 (refused) of the brokers: set adv"),
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
    assert unreachable([("a..b", 9092)]) == ["a..b:9092 (not the name of a host)"]


@pytest.mark.slow
def test_probe_runs_where_gregor_is_missing(tmp_path: Path) -> None:
    """It is sent by value; plain pickle in an empty environment stands for the worker, which has only PySpark's."""
    venv.create(tmp_path / "empty")
    pickled = tmp_path / "probe"
    pickled.write_bytes(cloudpickle.dumps(probe_of([Listeners([("127.0.0.1", 1)])])))
    library = Path(cloudpickle.__file__).parents[2]
    program = (
        f"import sys, types; pyspark = types.ModuleType('pyspark'); pyspark.__path__ = [{str(library / 'pyspark')!r}];"
        "sys.modules['pyspark'] = pyspark; import pickle;"
        f"print(pickle.loads(open({str(pickled)!r}, 'rb').read())(0))"
    )
    python = tmp_path / "empty" / "bin" / "python"
    done = subprocess.run([python, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    line = problem_of(json.loads(done.stdout), NOTHING)
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
    assert NOTHING["python"] == sys.executable


def test_one_bootstrap_server_of_a_cluster_is_enough() -> None:
    with socket.socket() as listening, socket.socket() as bound:
        for one in (listening, bound):
            one.bind(("127.0.0.1", 0))
        listening.listen()
        good, refused = (("127.0.0.1", one.getsockname()[1]) for one in (listening, bound))
        found = json.loads(probe_of([Listeners([refused, good])])(0))
        assert (found["no_bootstrap"], found["unreachable"]) == ([], [])
        found = json.loads(probe_of([Listeners([refused, good]), Listeners([refused])])(0))
        assert found["no_bootstrap"] == [f"127.0.0.1:{refused[1]} (Connection refused)"]


def test_missing_modules_are_found_also_those_of_packages() -> None:
    assert is_installed("gregor.protocol.errors")
    assert not is_installed("google_absent.protobuf")
    found = json.loads(probe_of(modules={"numpy", "google_absent.protobuf"})(0))
    assert found["missing"] == ["google_absent.protobuf"]


def test_digest_has_every_part_that_the_reader_imports() -> None:
    program = "import sys, gregor.spark_jobs.arrow.reader; print(*(n for n in sys.modules if n.startswith('gregor.')))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[1] for name in loaded} <= {*PARTS}
    assert "gregor.storage.segment.index" in loaded


@pytest.mark.slow
def test_advertised_listener_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    """Behind a bootstrap address that can be reached."""
    port, elsewhere = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{elsewhere}",
    }
    with BrokerProcess(tmp_path, settings, port):
        cluster = listeners_of({"kafka.bootstrap.servers": f"127.0.0.1:{port}"})
        found = json.loads(probe_of([cluster])(0))
    assert cluster == Listeners((("127.0.0.1", port),), [("127.0.0.1", elsewhere)])
    assert found["no_bootstrap"] == []
    line = problem_of(found, NOTHING)
    assert line is not None
    assert f"cannot connect to the advertised listeners 127.0.0.1:{elsewhere} (Connection refused)" in line


def test_listeners_of_security_that_the_client_does_not_have_are_the_bootstrap_servers() -> None:
    given = {"kafka.bootstrap.servers": "a:1,b:2", "kafka.security.protocol": "SASL_PLAINTEXT"}
    assert listeners_of(given) == Listeners([("a", 1), ("b", 2)])


EXACTLY_ONCE = {"sink": "exactly-once", "output_topic": "out", "transactional_id": "x", "checkpoint": "c"}


@pytest.mark.parametrize(
    ("options", "modules"),
    [
        (Options("t"), None),
        (Options("t", source="gregor"), "pyarrow"),
        (GenerateOptions("", sink="topic", output_topic="out"), None),
        (GenerateOptions("", **EXACTLY_ONCE), "pandas"),
        (FilesOptions("", **EXACTLY_ONCE), "pandas"),
        (ValueOptions("t", value_format="json"), None),
        (ValueOptions("t", value_format="avro"), "fastavro"),
        (ValueOptions("t", value_format="protobuf"), "google.protobuf"),
        (ValueOptions("t", dead_letter_topic="letters"), "pandas"),
    ],
)
def test_workers_are_checked_where_the_options_run_python(
    options: Options, modules: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[tuple[list[Listeners], frozenset[str]]] = []
    monkeypatch.setattr("gregor.spark_jobs.jobs.common.job.require_workers", lambda spark, *given: checks.append(given))
    monkeypatch.setattr(
        "gregor.spark_jobs.jobs.common.job.listeners_of", lambda given: Listeners([given["kafka.bootstrap.servers"]])
    )
    check_workers(None, options, through_connect=False)  # type: ignore[arg-type]  # only passed on
    if modules is None:
        assert checks == []
        check_workers(None, options, through_connect=True)  # type: ignore[arg-type]
    [(clusters, checked)] = checks
    assert clusters == [Listeners(["localhost:9092"])]
    if modules is not None:
        assert {modules, *MODULES} <= checked
