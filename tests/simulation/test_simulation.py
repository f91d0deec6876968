"""A cluster of gregor's own parts in virtual time, with all faults that a seed decides. `faults` contains these faults,
`ledger` and `world.lacking` contain the invariants.

GREGOR_SIMULATION_SEEDS names another number of seeds than 30; `make simulate` plays thousands."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.run import failure, trace

QUICK = range(10)
MANY = range(10, 10 + int(os.environ.get("GREGOR_SIMULATION_SEEDS", "30")))


def check(seed: int) -> None:
    found = failure(seed)
    if found is None:
        return
    again, lines = trace(seed)
    print(*lines[-400:], sep="\n")
    pytest.fail(
        f"seed {seed}: {found}\nagain, with a trace: {again}\n"
        f"the whole trace: python -m tests.simulation.run --seed {seed}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", QUICK)
def test_some_seeds(seed: int, pytestconfig: pytest.Config) -> None:
    given = pytestconfig.getoption("--seed", None)
    if given is not None and seed != QUICK[0]:
        pytest.skip("another seed was asked for")
    check(seed if given is None else given)


@pytest.mark.very_slow
@pytest.mark.parametrize("first", MANY[::30])
def test_many_seeds(first: int, pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--seed", None) is not None:
        pytest.skip("another seed was asked for")
    for seed in range(first, min(first + 30, MANY.stop)):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 21])
def test_a_seed_does_the_same_again(seed: int) -> None:
    """A run is also the same in another process, where strings hash differently. The second has a group."""
    _, lines = trace(seed)
    assert len(lines) > 50
    assert trace(seed)[1] == lines
    other = subprocess.run(
        [sys.executable, "-m", "tests.simulation.run", "--seed", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert other.returncode == 0, other.stderr
    assert other.stdout.splitlines()[: len(lines)] == lines
