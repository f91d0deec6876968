"""Lines that are kept from scrape to scrape: of entities (partitions, topics) with the same families each.

The entities come in blocks, whose size is that of a step. A family's lines of a block are made anew only where a value
of that family in the block has changed, or where the block has other entities: in most scrapes most of them stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from gregor.broker.metrics.family import Family
from gregor.protocol.turns import Steps

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page

KeyT = TypeVar("KeyT")
ItemT = TypeVar("ItemT")


class _Block(NamedTuple, Generic[KeyT]):
    keys: list[KeyT]
    columns: list[tuple[float, ...]]
    """The values by family, each in the order of `keys`."""
    lines: list[bytes]
    """The text by family."""


class KeptLines(Generic[KeyT]):
    """`put(...)` for each block, then `end(...)` once in a scrape."""

    def __init__(self, families: Sequence[Family], labels: Callable[[KeyT], str]) -> None:
        """`labels` returns the labels of an entity, as family.label_text does."""
        self._names = [family.name for family in families]
        self._labels = labels
        self._known: list[_Block[KeyT]] = []
        self._blocks: list[_Block[KeyT]] = []

    def put(self, keys: list[KeyT], rows: Sequence[Sequence[float]]) -> None:
        """Add a block: its entities, and the values of each in the order of the families."""
        if not keys:
            self._blocks.append(_Block([], [], []))
            return
        columns = list(zip(*rows, strict=True))
        index = len(self._blocks)
        known = self._known[index] if index < len(self._known) else None
        if known is not None and known.keys == keys:
            if known.columns == columns:
                self._blocks.append(known)
                return
            kept = [same == column for same, column in zip(known.columns, columns, strict=True)]
        else:
            kept = [False] * len(columns)
        labels = [f"{self._labels(key)} " for key in keys]
        lines = [
            known.lines[number] if known is not None and kept[number] else _text(name, labels, columns[number])
            for number, name in enumerate(self._names)
        ]
        self._blocks.append(_Block(keys, columns, lines))

    def put_again(self) -> None:
        """Add a block that has the entities and values of the last scrape's block at this place: as `put` with them."""
        self._blocks.append(self._known[len(self._blocks)])

    def end(self, page: Page) -> Steps[None]:
        """Add the lines of all blocks to the page, a family in each step; they are kept for the next scrape."""
        blocks = self._known = self._blocks
        self._blocks = []
        for number, name in enumerate(self._names):
            page.extend(name, [block.lines[number] for block in blocks if block.keys])
            yield None


def _text(name: str, labels: Sequence[str], values: Sequence[float]) -> bytes:
    return "".join([f"{name}{of_one}{value}\n" for of_one, value in zip(labels, values, strict=True)]).encode()


def batched(items: Sequence[ItemT], size: int) -> Iterator[Sequence[ItemT]]:
    """Yield `items` in blocks of `size`."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
