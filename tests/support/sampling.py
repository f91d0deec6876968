"""Samples for tests that run some of many cases, other ones on other days."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")


def of_the_day(items: Sequence[ItemT], count: int, day: datetime.date) -> list[ItemT]:
    """Return `count` of the items, the same ones all day."""
    return random.Random(day.toordinal()).sample(items, count)
