"""kafkajs, Node's client: node/kafkajs.js runs all checks, here each is a test."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.support.foreign_clients import NODE_SOURCES, node_modules, or_skip, run_checks

pytestmark = [pytest.mark.compat, pytest.mark.very_slow]

CHECKS = ["records[none]", "records[gzip]", "acks[none]", "acks[leader]", "idempotence", "group", "topics", "configs"]
CHECKS += ["delete-records", "offsets", "groups-admin", "cluster"]


@pytest.fixture(scope="module")
def results(bootstrap: str, unique: Callable[[str], str]) -> dict[str, str]:
    """Return the program's result of each check."""
    environment = {**os.environ, "NODE_PATH": str(or_skip(node_modules)), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return run_checks(["node", str(NODE_SOURCES / "kafkajs.js"), bootstrap, unique("kafkajs")], environment)


@pytest.mark.parametrize("check", CHECKS)
def test_kafkajs(results: dict[str, str], check: str) -> None:
    assert results.get(check, results[""]) == "PASS"


def test_nothing_is_left_out(results: dict[str, str]) -> None:
    assert set(results) - {""} == set(CHECKS), results[""]
