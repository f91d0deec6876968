"""The Java client of Apache Kafka 4.3.1: java/Checks.java runs all checks in one JVM, here each is a test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from tests.support.kafka import java_command
from tests.support.processes import ROOT

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

SOURCES = sorted((ROOT / "tests/compat/java").glob("*.java"))
TIMEOUT_S = 180
RECORDS = [f"records[{codec}]" for codec in ("none", "gzip", "snappy", "lz4", "zstd")]
ACKS = [f"acks[{acks}]" for acks in ("0", "1", "all")]
CHECKS = [
    *RECORDS,
    *ACKS,
    "idempotence",
    "murmur2",
    "places",
    "small-fetches",
    "auto-creation",
    "too-large",
    "unknown-topic",
    "group[eager]",
    "group[cooperative]",
    "commit",
    "static-member",
    "enforced-rebalance",
    "pattern",
    "topics",
    "bad-topics",
    "configs",
    "broker-configs",
    "groups-admin",
    "list-offsets",
    "cluster",
]


@pytest.fixture(scope="module")
def results(bootstrap: str, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the program's result of each check: `PASS`, or the error."""
    classes = tmp_path_factory.mktemp("classes")
    command = java_command("compat.Checks", bootstrap, unique("java"))
    place = command.index("-cp") + 1
    compiled = subprocess.run(
        ["javac", "-proc:none", "-cp", command[place], "-d", str(classes), *map(str, SOURCES)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert compiled.returncode == 0, compiled.stderr
    command[place] += f"{os.pathsep}{classes}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    said = {}
    *lines, end = done.stdout.splitlines() or [""]
    for line in lines if end == "DONE" else [*lines, end]:
        verdict, _, rest = line.partition(" # ")[0].partition(" ")
        name, _, reason = rest.partition(": ")
        said[name] = reason or verdict
    said[""] = f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return said


@pytest.mark.parametrize("check", CHECKS)
def test_java(results: dict[str, str], check: str) -> None:
    assert results.get(check, results[""]) == "PASS"


def test_nothing_is_left_out(results: dict[str, str]) -> None:
    assert set(results) - {""} == set(CHECKS), results[""]
