"""Lines that are kept from scrape to scrape: as if they were made anew, and made only where a value has changed."""

from __future__ import annotations

import random

from gregor.broker.metrics.family import GAUGE, Family
from gregor.broker.metrics.kept_lines import KeptLines, batched
from gregor.broker.metrics.page import Page
from gregor.protocol.turns import run_all

FAMILIES = [Family(name, GAUGE, (), f"Help of {name}.") for name in ("a", "b", "c")]
BLOCK = 4


class Lines:
    """The kept lines of numbered entities, and how often the labels of one were made."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self._kept = KeptLines(FAMILIES, self._labels)

    def _labels(self, key: int) -> str:
        self.made.append(key)
        return f'{{key="{key}"}}'

    def scrape(self, entities: dict[int, tuple[int, int, int]]) -> str:
        self.made.clear()
        for block in batched(list(entities.items()), BLOCK):
            self._kept.put([key for key, _ in block], [values for _, values in block])
        page = Page({family.name: family for family in FAMILIES})
        run_all(self._kept.end(page))
        return b"".join(run_all(page.render(openmetrics=False))).decode()


def test_only_the_blocks_with_a_change_are_made() -> None:
    lines, entities = Lines(), dict.fromkeys(range(12), (0, 0, 0))
    before = lines.scrape(entities)
    assert lines.made == list(range(12))
    assert lines.scrape(entities) == before and lines.made == []
    entities[5] = 0, 7, 0
    assert lines.scrape(entities) == before.replace('b{key="5"} 0', 'b{key="5"} 7')
    assert lines.made == [4, 5, 6, 7]


def test_kept_lines_are_those_that_would_be_made_anew() -> None:
    chosen, kept = random.Random(3), Lines()
    entities = {key: (0, 0, 0) for key in range(20)}
    for _ in range(200):
        for _ in range(chosen.randrange(3)):
            key = chosen.randrange(30)
            if chosen.random() < 0.3:
                entities.pop(key, None)
            else:
                entities[key] = chosen.randrange(2), chosen.randrange(2), 0
        assert kept.scrape(entities) == Lines().scrape(entities)
    assert kept.scrape({}) == ""
