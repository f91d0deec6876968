"""Samples for tests that run some of many cases, other ones on other days."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")


def of_the_day(items: Sequence[ItemT], count: int, day: datetime.date) -> list[ItemT]:
    """Return `count` of the items, the same ones all day; days that follow each other have all of them in turn."""
    shuffled = random.Random(len(items)).sample(items, len(items))
    first = day.toordinal() * count
    return [shuffled[(first + number) % len(items)] for number in range(count)]
