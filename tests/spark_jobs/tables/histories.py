"""Random histories of keys in partitions, and the rows that they leave, in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

KEYS = ["history", "name"]
START_S = 1_700_000_000


class Change(NamedTuple):
    """A record of a key; a `text` of None is a tombstone."""

    history: int
    name: str
    text: str | None
    partition: int
    offset: int
    time_s: int


def history(chance: random.Random, number: int, tombstones: bool, partitions: int) -> list[Change]:
    """Return the records of one history, whose timestamps jump."""
    offsets = [0] * partitions
    changes = []
    for at in range(chance.randrange(1, 14)):
        partition = chance.randrange(partitions)
        offsets[partition] += chance.randrange(1, 4)
        text = None if tombstones and chance.random() < 0.3 else f"{number}-{at}"
        time_s = START_S + chance.randrange(9)
        changes.append(Change(number, chance.choice("ab"), text, partition, offsets[partition], time_s))
    return changes


def cut(chance: random.Random, changes: list[Change], count: int) -> list[list[Change]]:
    """Cut the records of each partition into consecutive parts, one a batch, each partition at its own speed."""
    batches: list[list[Change]] = [[] for _ in range(count)]
    for partition in sorted({change.partition for change in changes}):
        own = [change for change in changes if change.partition == partition]
        places = sorted(chance.randrange(count) for _ in own)
        for place, change in zip(places, own, strict=True):
            batches[place].append(change)
    return batches


def latest(changes: Iterable[Change]) -> dict[tuple[int, str], str]:
    """Return the text of each key: of the partition with the latest timestamp of the key, at its highest offset."""
    by_key: dict[tuple[int, str], dict[int, list[Change]]] = {}
    for change in changes:
        by_key.setdefault((change.history, change.name), {}).setdefault(change.partition, []).append(change)
    found = {}
    for key, partitions in by_key.items():
        times = {number: max(change.time_s for change in own) for number, own in partitions.items()}
        winner = max(partitions, key=lambda number: (times[number], number))
        text = max(partitions[winner], key=lambda change: change.offset).text
        if text is not None:
            found[key] = text
    return found
