"""gregor.broker.telemetry.series: values of pushes, one after the other."""

from __future__ import annotations

import math

from gregor.broker.telemetry.otlp import Point
from gregor.broker.telemetry.series import ClientSeries


def values(series: ClientSeries) -> dict[str, float]:
    return {name: value.value for (name, _), value in series.items()}


def gauge(name: str, value: float) -> Point:
    return Point(name, (), value, False, False)


def delta(name: str, value: float) -> Point:
    return Point(name, (), value, True, True)


def cumulative(name: str, value: float) -> Point:
    return Point(name, (), value, True, False)


def test_differences_are_added_and_others_replaced() -> None:
    series = ClientSeries()
    assert series.push([gauge("g", 5), delta("d", 5), cumulative("c", 5)], 10) == 0
    assert series.push([gauge("g", 2), delta("d", 2), cumulative("c", 7)], 10) == 0
    assert values(series) == {"g": 2, "d": 7, "c": 7}


def test_series_that_is_not_repeated_is_gone_unless_it_is_a_sum_of_differences() -> None:
    series = ClientSeries()
    series.push([gauge("g", 5), delta("d", 5), cumulative("c", 5)], 10)
    series.push([gauge("h", 1)], 10)
    assert values(series) == {"d": 5, "h": 1}


def test_client_that_changes_to_cumulative_values_begins_anew() -> None:
    series = ClientSeries()
    series.push([delta("d", 5)], 10)
    series.push([cumulative("d", 6)], 10)
    series.push([delta("d", 1)], 10)
    assert values(series) == {"d": 1}


def test_what_is_no_number_is_left_out() -> None:
    series = ClientSeries()
    assert series.push([gauge("a", math.nan), gauge("b", math.inf), gauge("c", 1)], 10) == 0
    assert values(series) == {"c": 1}
