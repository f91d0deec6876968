"""The text of a page, in both formats, and the table of all families."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gregor.broker.metrics.family import COUNTER, GAUGE, UNTYPED, Family, label_text
from gregor.broker.metrics.page import Page
from gregor.broker.metrics.table import FAMILIES, markdown
from gregor.protocol.turns import run_all
from tests.support.processes import ROOT

TYPES = (COUNTER, GAUGE, UNTYPED)


def page_of(*families: Family) -> Page:
    return Page({family.name: family for family in families})


def text_of(page: Page, *, openmetrics: bool = False) -> str:
    return b"".join(run_all(page.render(openmetrics=openmetrics))).decode()


def test_families_stand_in_the_order_of_the_table_and_empty_ones_are_left_out() -> None:
    page = page_of(*(Family(name, GAUGE, (), f"Help of {name}.") for name in ("a", "b", "c")))
    page.add("c", 1.5)
    page.add("a", 2, label_text(x="1"))
    page.extend("a", [b"a 3\n"])
    assert text_of(page) == (
        '# HELP a Help of a.\n# TYPE a gauge\na{x="1"} 2\na 3\n# HELP c Help of c.\n# TYPE c gauge\nc 1.5\n'
    )


def test_lines_are_in_the_pieces_of_the_text_without_a_copy() -> None:
    page, line = page_of(Family("a", GAUGE, (), "A.")), b"a 3\n"
    page.extend("a", [line])
    assert any(piece is line for piece in run_all(page.render(openmetrics=False)))


def test_openmetrics_names_counters_without_their_suffix() -> None:
    page = page_of(Family("a_total", COUNTER, (), "A."), Family("b", UNTYPED, (), "B."))
    page.add("a_total", 1)
    page.add("b", 2)
    assert text_of(page, openmetrics=True) == (
        "# HELP a A.\n# TYPE a counter\na_total 1\n# HELP b B.\n# TYPE b unknown\nb 2\n# EOF\n"
    )


def test_a_family_that_is_not_in_the_table_cannot_be_shown() -> None:
    with pytest.raises(KeyError):
        page_of().add("unknown", 1)


def test_any_text_can_be_the_value_of_a_label() -> None:
    assert label_text(group='a"b\\c\nd', n=1) == r'{group="a\"b\\c\nd",n="1"}'


def test_every_family_of_the_table_is_well_named_and_explained() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert family.type in TYPES and (family.type == COUNTER) == name.endswith("_total"), name
        assert family.type == UNTYPED or not name.endswith(("_sum", "_count", "_bucket")), name
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in family.labels), name
        assert family.help.endswith(".") and "|" not in family.help and "\n" not in family.help


def test_the_documentation_has_the_table_of_all_families() -> None:
    """To write it anew: python -m tests.broker.metrics.write_table."""
    assert markdown() in Path(ROOT, "docs/metrics.md").read_text()
