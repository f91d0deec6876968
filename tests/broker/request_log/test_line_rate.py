"""gregor.broker.request_log.line_rate: so many lines in a second, and the number of those left out."""

from __future__ import annotations

from collections.abc import Callable

from gregor.broker.request_log.line_rate import MAX_BYTES, MAX_LINES, LineRate


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.reports: list[int] = []
        self.rate = LineRate(lambda: self.now_s, self._later, self.reports.append)

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.due.append((self.now_s + delay_s, call))

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        due = [call for when_s, call in self.due if when_s <= self.now_s]
        self.due = [one for one in self.due if one[0] > self.now_s]
        for call in due:
            call()


def test_a_burst_is_cut_and_its_rest_counted_at_the_end_of_the_second() -> None:
    clock = Clock()
    assert sum(clock.rate.admits() for _ in range(MAX_LINES + 7)) == MAX_LINES
    clock.advance(0.5)
    assert not clock.rate.admits()
    assert not clock.reports
    clock.advance(0.5)
    assert clock.reports == [8]
    assert clock.rate.admits()
    clock.advance(5)
    assert clock.reports == [8]


def test_long_lines_count_by_their_bytes() -> None:
    clock = Clock()
    assert clock.rate.admits()
    clock.rate.wrote(MAX_BYTES)
    assert not clock.rate.admits()
    clock.advance(1)
    assert clock.rate.admits()
    assert clock.reports == [1]


def test_nothing_is_reported_while_all_lines_are_written() -> None:
    clock = Clock()
    for _ in range(10):
        assert sum(clock.rate.admits() for _ in range(MAX_LINES)) == MAX_LINES
        clock.advance(1)
    assert not clock.reports and not clock.due
