"""A log contains what it must, after any events in any order (tests.storage.log_life)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.storage.log_life import LogLife

STEPS = 120


def live(seed: int) -> None:
    life = LogLife(seed)
    try:
        for _ in range(STEPS):
            life.step()
        life.check()
    except Exception as error:
        error.add_note(f"seed {seed}: " + " | ".join(life.trace[-30:]))
        raise


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Disable log messages, as the many crashes would write too many."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(20))
def test_a_life_of_a_log(seed: int) -> None:
    live(seed)


@pytest.mark.slow
def test_a_hundred_lives_of_a_log() -> None:
    for seed in range(1000, 1100):
        live(seed)
