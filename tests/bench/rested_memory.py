"""How fast the machine's memory is: a line that benchmarks print.

A page that a process has not touched for a second costs 0.2 us at the next access on an ordinary machine. On a virtual
machine whose host withdraws memory at rest it may cost a hundred times as much, the more, the farther the machine's
pages lie apart. Then a start, an idle broker and thousands of idle connections or partitions cost several times their
usual processor time.
"""

from __future__ import annotations

import mmap
import time

SLOW_US = 1.0
_PAGES = 5000
_REST_S = 1.0
_REMEDY = "as root: sync; echo 3 >/proc/sys/vm/drop_caches; echo 1 >/proc/sys/vm/compact_memory"


def rested_page_us(pages: int = _PAGES, rest_s: float = _REST_S) -> float:
    """Return the mean time to read a byte of each of so many pages after a rest."""
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as pages_at_rest:
        positions = range(0, len(pages_at_rest), mmap.PAGESIZE)
        for position in positions:
            pages_at_rest[position] = 1
        time.sleep(rest_s)  # what is measured: the host withdraws pages by its own clock
        begin_s = time.perf_counter()
        for position in positions:
            pages_at_rest[position]
        return (time.perf_counter() - begin_s) / pages * 1e6


def report() -> None:
    print(line(rested_page_us()), flush=True)


def line(cost_us: float) -> str:
    """Return the line, with the remedy where memory is slow."""
    cost = f"# a page of memory that rested for {_REST_S:.0f} s: {cost_us:.1f} us"
    return cost if cost_us <= SLOW_US else f"{cost}; this is slow, and changes figures ({_REMEDY})"
