"""The records that the clients send, of every shape, so that the records read can be compared with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S = 120.0
"""Longer than any step of a test on a busy machine: a test that waits this long has failed."""

_log = logging.getLogger(__name__)


class Sent(NamedTuple):
    """One record as a producer was given it."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def assorted(count: int = 40, *, null_headers: bool = True) -> list[Sent]:
    """Records with and without key, value and headers, with odd bytes and sizes, timestamps 10 ms apart and past.

    Some clients accept no None as a header's value: `null_headers=False`.
    """
    start_ms = int(time.time() * 1000) - 3_600_000
    records = []
    for number in range(count):
        shape = number % 8
        key = None if shape in (0, 5) else b"" if shape == 1 else b"key-%d" % number
        value: bytes | None = b"value-%d" % number
        if shape == 2:
            value = None
        elif shape == 3:
            value = b""
        elif shape == 4:
            value = bytes(range(256)) * 40
        elif shape == 6:
            value = "Grüße, Wörld \u2603".encode() * 20
        headers: list[tuple[str, bytes | None]] = []
        if shape in (4, 5):
            headers = [("h", b"1"), ("h", b"\x00\xff"), ("empty", b"")]
        elif shape == 6:
            headers = [("null", None if null_headers else b""), ("ünï", b"x" * 300)]
        records.append(Sent(key, value, headers, start_ms + 10 * number))
    return records


def until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Call `condition`, which may itself wait for a while, until it holds; fail with `what` when it never does."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() < begin + timeout_s, f"waited {timeout_s:.0f} s in vain: {what}"
        time.sleep(0.01)
    _log.info("%.2f s for %s", time.monotonic() - begin, what)
