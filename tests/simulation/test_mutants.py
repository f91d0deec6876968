"""Known mistakes: each can still be made, and the simulation finds a few of them, other ones every day."""

from __future__ import annotations

import datetime

import pytest

from tests.simulation.edits import apply
from tests.simulation.mutants import MUTANTS, RARE, Mutant, mutants_of_the_day, outcome
from tests.support.processes import ROOT

SAMPLE = 4
SEEDS = 100
TIMEOUT_S = 100
DAY = datetime.date(2026, 11, 22)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_known_mistake_can_still_be_made(mutant: Mutant) -> None:
    """The edits of a mutant that does not apply any more must follow the code."""
    changed = apply(mutant.edits, ROOT)
    assert changed
    for path, text in changed.items():
        compile(text, str(path), "exec")


def test_names_are_unique_and_rare_ones_are_among_them() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert set(names) >= RARE


def test_every_day_has_other_mistakes_and_only_such_as_are_found_soon() -> None:
    days = [mutants_of_the_day(SAMPLE, DAY + datetime.timedelta(number)) for number in range(200)]
    assert mutants_of_the_day(SAMPLE, DAY) == days[0]
    assert all(len(set(day)) == SAMPLE for day in days)
    assert {mutant.name for day in days for mutant in day} == {mutant.name for mutant in MUTANTS} - RARE


@pytest.mark.very_slow
@pytest.mark.parametrize("number", range(SAMPLE))
def test_a_mistake_of_the_day_is_found(number: int, day: datetime.date) -> None:
    mutant = mutants_of_the_day(SAMPLE, day)[number]
    found = outcome(mutant, SEEDS, TIMEOUT_S)
    print(f"{mutant.name}: {found}")
    assert found.startswith("seed "), f"{mutant.name}: {found}"
