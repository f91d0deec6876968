"""A family of metrics: one line of the table in docs/metrics.md."""

from __future__ import annotations

from typing import NamedTuple

COUNTER = "counter"
GAUGE = "gauge"
UNTYPED = "untyped"
"""Gauges whose names, which dashboards know, end as those of parts of histograms do: linters accept that of untyped
metrics alone."""


class Family(NamedTuple):
    """Its name, its type, the names of its labels, and its meaning, with the broker that shows it."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


def label_text(**labels: object) -> str:
    """Return the labels of a series as Prometheus reads them: `{name="value",...}`."""
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in labels.items()) + "}"


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
