"""Work in slices, done at once."""

from __future__ import annotations

import pytest

from gregor.protocol.slices import Slices, run_slices


def test_results_of_calls_are_sent_back_in() -> None:
    def work() -> Slices[list[int]]:
        first = yield lambda: 1
        yield None
        second = yield lambda: first + 1
        return [first, second]

    assert run_slices(work()) == [1, 2]


def test_errors_of_calls_are_raised_where_the_call_was_asked_for() -> None:
    def work(forgiving: bool) -> Slices[str]:
        try:
            yield lambda: int("x")
        except ValueError:
            if forgiving:
                return "forgiven"
            raise
        return "no error"

    assert run_slices(work(True)) == "forgiven"
    with pytest.raises(ValueError, match="invalid literal"):
        run_slices(work(False))
