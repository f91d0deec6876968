"""Lets gregor's modules see virtual time, and numbers that a seed decides, while a simulation runs."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType, SimpleNamespace

from gregor.protocol import ids
from tests.simulation.loop import VirtualLoop, owner

EPOCH_MS = 1_700_000_000_000
"""The wall clock at the beginning."""


def wall_ms(loop: VirtualLoop) -> int:
    """By the clock of the calling process."""
    process = owner()
    return EPOCH_MS + int(loop.time() * 1000) + (0 if process is None else process.clock_ahead_ms)


@contextmanager
def virtual(loop: VirtualLoop, rng: random.Random) -> Iterator[None]:
    """In place of the modules `time` and `random`, wherever gregor has imported them, and of the bytes of uuids."""
    clock = SimpleNamespace(**vars(time))
    clock.__dict__.update(
        monotonic=loop.time,
        perf_counter=loop.time,
        time=lambda: wall_ms(loop) / 1000,
        time_ns=lambda: wall_ms(loop) * 1_000_000,
    )
    system = SimpleNamespace(**vars(os))
    system.urandom = rng.randbytes
    ids.os = system  # type: ignore[attr-defined]
    clock_uses, random_uses = _uses(len(sys.modules))
    for module in clock_uses:
        module.time = clock  # type: ignore[attr-defined]
    for module in random_uses:
        module.random = rng  # type: ignore[attr-defined]
    try:
        yield
    finally:
        ids.os = os  # type: ignore[attr-defined]
        for module in clock_uses:
            module.time = time  # type: ignore[attr-defined]
        for module in random_uses:
            module.random = random  # type: ignore[attr-defined]


@lru_cache(1)
def _uses(_imported: int) -> tuple[list[ModuleType], list[ModuleType]]:
    """Return gregor's modules that have imported `time`, and those with `random`; the same until more are imported."""
    modules = [module for name, module in sys.modules.items() if name.startswith("gregor.")]
    return (
        [module for module in modules if getattr(module, "time", None) is time],
        [module for module in modules if getattr(module, "random", None) is random],
    )
