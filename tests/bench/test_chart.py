"""The chart of ratios: well-formed, the same for the same figures, bars where they belong."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.bench.chart import Row, chart

SPACE = "{http://www.w3.org/2000/svg}"
ROWS = [Row("twice & more <", [1.9, 2.0, 2.5]), Row("half", [0.5]), Row("equal", [1.0, 1.0])]


def drawn(rows: list[Row]) -> ElementTree.Element:
    return ElementTree.fromstring(chart('a "title"', rows, "a note"))


def test_every_figure_has_its_bar_and_its_number() -> None:
    picture = drawn(ROWS)
    texts = [text.text for text in picture.iter(f"{SPACE}text")]
    assert {"twice & more <", "half", "equal", "2.00  (1.90 to 2.50)", "0.50", "a note"} <= set(texts)
    assert [bar.get("class") for bar in picture.iter(f"{SPACE}rect")] == ["better", "worse", "better"]


def test_a_bar_reaches_from_one_to_the_median() -> None:
    picture = drawn(ROWS)
    [one] = [float(line.get("x1", "")) for line in picture.iter(f"{SPACE}line") if line.get("class") == "one"]
    twice, half, equal = picture.iter(f"{SPACE}rect")
    assert float(twice.get("x", "")) == one
    assert float(half.get("x", "")) + float(half.get("width", "")) == one
    assert abs(float(twice.get("width", "")) - float(half.get("width", ""))) < 0.2  # the scale is logarithmic
    assert float(equal.get("width", "")) == 0


def test_nothing_leaves_the_picture() -> None:
    picture = drawn([Row("tiny", [0.01, 0.02]), Row("huge", [40.0, 90.0])])
    width = float(picture.get("width", ""))
    for line in picture.iter(f"{SPACE}line"):
        assert 0 <= float(line.get("x1", "")) <= float(line.get("x2", "")) <= width


def test_equal_figures_make_equal_bytes() -> None:
    assert chart("t", ROWS) == chart("t", list(ROWS))
    assert "prefers-color-scheme: dark" in chart("t", [])
