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
    substitutes = {"os": system, "time": clock, "random": rng}
    uses = _uses(len(sys.modules))
    for module, attribute, _ in uses:
        setattr(module, attribute, substitutes[attribute])
    try:
        yield
    finally:
        for module, attribute, real in uses:
            setattr(module, attribute, real)


@lru_cache(1)
def _uses(_imported: int) -> list[tuple[ModuleType, str, ModuleType]]:
    """Return gregor's modules that have imported `time` or `random`, and that of the uuids with `os`, each with the
    name and the module that it imported; the same until more are imported."""
    modules = [module for name, module in sys.modules.items() if name.startswith("gregor.")]
    found: list[tuple[ModuleType, str, ModuleType]] = [(ids, "os", os)]
    for attribute, real in (("time", time), ("random", random)):
        found += [(module, attribute, real) for module in modules if getattr(module, attribute, None) is real]
    return found
