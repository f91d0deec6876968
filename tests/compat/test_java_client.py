"""The Java client of Apache Kafka 4.3.1: java/Checks.java runs all checks in one JVM, here each is a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compat.java_checks import compiled, run_checks

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

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
    return run_checks("compat.Checks", bootstrap, unique("java"), classes=compiled(tmp_path_factory.mktemp("classes")))


@pytest.mark.parametrize("check", CHECKS)
def test_java(results: dict[str, str], check: str) -> None:
    assert results.get(check, results[""]) == "PASS"


def test_nothing_is_left_out(results: dict[str, str]) -> None:
    assert set(results) - {""} == set(CHECKS), results[""]
