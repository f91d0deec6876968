"""The figures of gregor with an authorizer and quotas beside gregor without."""

from __future__ import annotations

from tests.bench.guards import cost_figures


def test_ratio_of_rates_has_a_minimum() -> None:
    (figure,) = cost_figures("produce, 1/s", True, [96.0, 90.0, 99.0], [100.0, 100.0, 100.0])
    assert (figure.value, figure.missed) == (0.96, False)
    (figure,) = cost_figures("produce, 1/s", True, [94.0, 90.0, 99.0], [100.0, 100.0, 100.0])
    assert figure.missed


def test_cost_of_a_request_has_a_limit() -> None:
    (figure,) = cost_figures("produce, us", False, [12.0, 13.0, 30.0], [10.5, 11.0, 10.0])
    assert (figure.value, figure.missed) == (2.0, False)
    (figure,) = cost_figures("produce, us", False, [12.6, 13.1, 30.0], [10.5, 11.0, 10.0])
    assert figure.missed


def test_load_that_was_not_run_has_no_figure() -> None:
    assert cost_figures("produce, us", False, [], []) == []
