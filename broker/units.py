"""Sizes and durations in readable units."""

from __future__ import annotations

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def duration(ms: float) -> str:
    """Return the two largest units: `3 d 4 h`, `12 s`, `250 ms`."""
    rest = int(ms)
    parts = []
    for unit_ms, name in _UNITS:
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count} {name}")
        if len(parts) == 2 or (parts and not count):
            break
    return " ".join(parts) or f"{rest} ms"


def size(size_bytes: float) -> str:
    """Return `831 B`, `12.0 KB`, `3.4 MB`, `1.2 GB`, in powers of 1000."""
    if size_bytes < 1000:
        return f"{int(size_bytes)} B"
    for unit in ("KB", "MB"):
        size_bytes /= 1000
        if size_bytes < 999.95:
            return f"{size_bytes:.1f} {unit}"
    return f"{size_bytes / 1000:.1f} GB"
