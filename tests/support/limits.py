"""Figures of the code that may fall and not rise: tests/limits.tsv, a name and an upper limit in each line."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.processes import ROOT

PATH = ROOT / "tests" / "limits.tsv"


def limits() -> dict[str, int]:
    """Return the upper limits by name. The lower one counts where a merge of two branches left both of them."""
    found: dict[str, int] = {}
    for line in PATH.read_text().splitlines():
        name, tab, limit = line.partition("\t")
        if tab:
            found[name] = min(int(limit), found.get(name, int(limit)))
    return found


def lower(figures: Mapping[str, int]) -> None:
    """Lower the limits of some figures to their present values. No limit is raised."""
    lowered = {name: min(limit, figures.get(name, limit)) for name, limit in limits().items()}
    PATH.write_text("".join(f"{name}\t{limit}\n" for name, limit in sorted(lowered.items())))
