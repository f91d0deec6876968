"""Go's clients, franz-go and sarama: the programs in go/ run all checks, here each is a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.foreign_clients import go_program, or_skip, run_checks

pytestmark = [pytest.mark.compat, pytest.mark.very_slow]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BOTH = [*(f"records[{codec}]" for codec in CODECS), "acks[none]", "offsets", "group", "topics", "configs"]
BOTH += ["delete-records", "groups-admin", "log-dirs"]
CHECKS = {
    "franz": [*BOTH, "acks[leader]", "elections", "cluster"],
    "sarama": [*BOTH, "idempotence", "old-version", "reassignments"],
}


@pytest.fixture(scope="module")
def results(bootstrap: str, unique: Callable[[str], str]) -> Callable[[str], dict[str, str]]:
    """Return a function that runs a program and returns its result of each check."""
    said: dict[str, dict[str, str]] = {}

    def run(client: str) -> dict[str, str]:
        if client not in said:
            program = or_skip(go_program, client)
            said[client] = run_checks([str(program), bootstrap, unique(client)])
        return said[client]

    return run


@pytest.mark.parametrize(
    ("client", "check"), [(client, check) for client, checks in CHECKS.items() for check in checks]
)
def test_go(results: Callable[[str], dict[str, str]], client: str, check: str) -> None:
    found = results(client)
    assert found.get(check, found[""]) == "PASS"


@pytest.mark.parametrize("client", CHECKS)
def test_nothing_is_left_out(results: Callable[[str], dict[str, str]], client: str) -> None:
    found = results(client)
    assert set(found) - {""} == set(CHECKS[client]), found[""]
