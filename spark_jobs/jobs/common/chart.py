"""A series as a line chart in SVG, readable on light and on dark pages; the same bytes for the same figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from gregor.spark_jobs.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WIDTH, HEIGHT = 780, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 40, 40
COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e", "#9a6700", "#1b7c83", "#bf3989")
MAX_LINES = len(COLOURS)
MAX_POINTS = 5000
"""Times kept for a chart; the oldest ones leave it."""
STYLE = """\
text { font: 12px -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.grid { stroke: #d1d9e0 }
polyline { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .grid { stroke: #3d444d } }"""

Series = Mapping[str, Mapping[datetime, float]]


def line_chart(title: str, series: Series) -> str:
    """Return the document: one line per name, the names with the largest totals only."""
    names = sorted(series, key=lambda name: (-sum(series[name].values()), name))[:MAX_LINES]
    times = sorted({time for name in names for time in series[name]})
    highest = max((value for name in names for value in series[name].values()), default=0) or 1
    first, last = (times[0], times[-1]) if times else (datetime(1970, 1, 1), datetime(1970, 1, 1))
    span_s = (last - first).total_seconds() or 1

    def x(time: datetime) -> float:
        return LEFT + (time - first).total_seconds() / span_s * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / highest * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">',
        f"<style>\n{STYLE}\n</style>",
        f'<text x="{LEFT}" y="20" font-weight="600">{escape(title)}</text>',
    ]
    for part in range(5):
        value = highest * part / 4
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.6g}</text>')
    for time, anchor in ((first, "start"), (last, "end"))[: len(times)]:
        out.append(f'<text x="{x(time):.1f}" y="{HEIGHT - 14}" text-anchor="{anchor}">{time:%Y-%m-%d %H:%M:%S}</text>')
    for number, name in enumerate(names):
        points = [f"{x(time):.1f},{y(series[name].get(time, 0)):.1f}" for time in times]
        middle = TOP + 18 * number
        out.append(f'<polyline stroke="{COLOURS[number]}" points="{" ".join(points)}"/>')
        out.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{middle}" width="10" height="10" fill="{COLOURS[number]}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 28}" y="{middle + 10}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>\n"])


class Chart:
    """Collects a series from the batches of a run, and writes the file after each."""

    def __init__(self, path: str, title: str, time: str, name: str, value: str) -> None:
        self._path, self._title = Path(path), title
        self._columns = (time, name, value)
        self._series: dict[str, dict[datetime, float]] = defaultdict(dict)

    def observer(self) -> Callable[[DataFrame, int], None]:
        """Return the function for each batch."""

        def observe(batch: DataFrame, batch_id: int) -> None:
            for time, name, value in batch.select(*self._columns).toLocalIterator():
                if time is not None and value is not None:
                    self._series[str(name)][time] = float(value)
            self._forget_oldest()
            self._write()

        return observe

    def _forget_oldest(self) -> None:
        times = sorted({time for points in self._series.values() for time in points})
        for points in self._series.values():
            for time in times[:-MAX_POINTS]:
                points.pop(time, None)

    def _write(self) -> None:
        try:
            self._path.write_text(line_chart(self._title, self._series), encoding="utf-8")
        except OSError as error:
            raise JobError(f"the chart {self._path} cannot be written: {error.strerror}") from error
