"""The line about the speed of the machine's memory, and its remedy where that is slow."""

from tests.bench.rested_memory import SLOW_US, line, rested_page_us


def test_the_time_of_a_page_is_measured() -> None:
    assert 0 < rested_page_us(pages=10, rest_s=0.001) < 100_000


def test_only_slow_memory_has_a_remedy() -> None:
    assert line(0.2) == "# a page of memory that rested for 1 s: 0.2 us"
    assert line(SLOW_US * 2).endswith("echo 1 >/proc/sys/vm/compact_memory)")
