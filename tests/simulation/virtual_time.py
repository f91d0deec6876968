"""Lets gregor's modules see virtual time, and numbers that a seed decides, while a simulation runs."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

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
    replaced = [(ids, "os", os)]
    ids.os = system  # type: ignore[attr-defined]
    for name, module in list(sys.modules.items()):
        if name.startswith("gregor."):
            for attribute, real, put in (("time", time, clock), ("random", random, rng)):
                if getattr(module, attribute, None) is real:
                    setattr(module, attribute, put)
                    replaced.append((module, attribute, real))
    try:
        yield
    finally:
        for module, attribute, real in replaced:
            setattr(module, attribute, real)
