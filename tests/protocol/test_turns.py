"""Work in slices, done at once."""

from __future__ import annotations

import pytest

from gregor.protocol.turns import Steps, run_all


def test_results_of_calls_are_sent_back_in() -> None:
    def work() -> Steps[list[int]]:
        first = yield lambda: 1
        yield None
        second = yield lambda: first + 1
        return [first, second]

    assert run_all(work()) == [1, 2]


def test_errors_of_calls_are_raised_where_the_call_was_asked_for() -> None:
    def work(forgiving: bool) -> Steps[str]:
        try:
            yield lambda: int("x")
        except ValueError:
            if forgiving:
                return "forgiven"
            raise
        return "no error"

    assert run_all(work(True)) == "forgiven"
    with pytest.raises(ValueError, match="invalid literal"):
        run_all(work(False))
