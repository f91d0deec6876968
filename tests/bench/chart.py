"""Ratios as bars, in SVG: one file that is readable on light and on dark pages, the same bytes for the same figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH = 780
LABELS = 220
"""Width of the column of names; the bars begin behind it."""
VALUES = 150
ROW = 26
TOP = 56
BOTTOM = 30

STYLE = """\
text { font: 13px -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.quiet { fill: #59636e; font-size: 11px }
.better { fill: #1a7f37 }
.worse { fill: #bc4c00 }
line { stroke: #d1d9e0 }
.one, .span { stroke: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .quiet { fill: #9198a1 }
  .better { fill: #3fb950 }
  .worse { fill: #f0883e }
  line { stroke: #3d444d }
  .one, .span { stroke: #9198a1 }
}"""


class Row(NamedTuple):
    """The ratio of one figure in each round, gregor to Apache Kafka or the reverse: above 1 gregor is better."""

    figure: str
    ratios: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)


def chart(title: str, rows: Sequence[Row], note: str = "") -> str:
    """The document. The scale is logarithmic: twice as good and half as good are equally far from 1."""
    every = [ratio for row in rows for ratio in row.ratios] or [1.0]
    low = min(0.5, 2 ** math.floor(math.log2(min(every))))
    high = max(2.0, 2 ** math.ceil(math.log2(max(every))))
    height = TOP + ROW * len(rows) + BOTTOM

    def x(ratio: float) -> str:
        share = (math.log2(ratio) - math.log2(low)) / (math.log2(high) - math.log2(low))
        return f"{LABELS + share * (WIDTH - LABELS - VALUES):.1f}"

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">',
        f"<style>\n{STYLE}\n</style>",
        f'<text x="0" y="18" font-weight="600">{escape(title)}</text>',
    ]
    tick = low
    while tick <= high:
        kind = "one" if tick == 1 else "grid"
        out.append(f'<line class="{kind}" x1="{x(tick)}" x2="{x(tick)}" y1="{TOP - 4}" y2="{height - BOTTOM + 4}"/>')
        out.append(f'<text class="quiet" x="{x(tick)}" y="{height - BOTTOM + 18}" text-anchor="middle">{tick:g}</text>')
        tick *= 2
    for number, row in enumerate(rows):
        middle = TOP + ROW * number + ROW // 2
        begin, end = sorted((1.0, row.median))
        kind = "better" if row.median >= 1 else "worse"
        width = f"{float(x(end)) - float(x(begin)):.1f}"
        out.append(f'<text x="0" y="{middle + 4}">{escape(row.figure)}</text>')
        out.append(f'<rect class="{kind}" x="{x(begin)}" y="{middle - 7}" width="{width}" height="14" rx="2"/>')
        if len(row.ratios) > 1:
            least, most = min(row.ratios), max(row.ratios)
            out.append(f'<line class="span" x1="{x(least)}" x2="{x(most)}" y1="{middle}" y2="{middle}"/>')
            told = f"{row.median:.2f}  ({least:.2f} to {most:.2f})"
        else:
            told = f"{row.median:.2f}"
        out.append(f'<text x="{WIDTH - VALUES + 8}" y="{middle + 4}">{told}</text>')
    if note:
        out.append(f'<text class="quiet" x="0" y="36">{escape(note)}</text>')
    out.append("</svg>\n")
    return "\n".join(out)
