"""One scrape: the series of all families, and their text in Prometheus' formats.

Both formats differ in the lines about a family and in the last line; the lines of series are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gregor.broker.metrics.family import COUNTER, UNTYPED, Family
from gregor.protocol.turns import Steps

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TEXT = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TOTAL = "_total"


class Page:
    """Collects lines by family. Only families of the table can be added; one without a series is left out."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families
        self._lines: dict[str, list[bytes]] = {name: [] for name in families}

    def add(self, name: str, value: float, labels: str = "") -> None:
        """Add a series; `labels` as label_text returns them."""
        self._lines[name].append(f"{name}{labels} {value}\n".encode())

    def extend(self, name: str, lines: Iterable[bytes]) -> None:
        """Add whole lines."""
        self._lines[name].extend(lines)

    def render(self, *, openmetrics: bool) -> Steps[list[bytes]]:
        """Return the text in pieces, a family in each step. Kept lines are not copied."""
        pieces = []
        for name, family in self._families.items():
            lines = self._lines[name]
            if lines:
                pieces.append(_head(family, openmetrics).encode())
                pieces.extend(lines)
                yield None
        if openmetrics:
            pieces.append(b"# EOF\n")
        return pieces


def _head(family: Family, openmetrics: bool) -> str:
    name, kind = family.name, family.type
    if openmetrics:
        name = name.removesuffix(_TOTAL) if kind == COUNTER else name
        kind = "unknown" if kind == UNTYPED else kind
    help_text = family.help.replace("\\", "\\\\").replace("\n", " ")
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
