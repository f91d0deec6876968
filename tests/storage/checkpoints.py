"""Writes checkpoints as the broker's job does."""

from __future__ import annotations

from gregor.protocol.turns import run_all
from gregor.storage.folders.manager import LogManager


def write_high_watermarks(manager: LogManager) -> dict[str, OSError] | None:
    """Return the errors by data folder; None where nothing had to be written."""
    write = run_all(manager.checkpoints.high_watermarks())
    return None if write is None else write()
