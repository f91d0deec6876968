"""Records of the output of a consume-transform-produce loop, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from confluent_kafka import Message

MAX_NAMED = 5


class Copy(NamedTuple):
    """A record of the output."""

    partition: int
    offset: int
    value: str

    @property
    def source(self) -> str:
        """Return the input value, PARTITION.NUMBER."""
        return self.value.split("|")[0]

    @property
    def attempt(self) -> str:
        """Return the transaction, LABEL-NUMBER."""
        return self.value.split("|")[1]

    @property
    def fate(self) -> str:
        return self.value.split("|")[2]


def violations(
    final: list[Copy], everything: list[Copy], fed: dict[int, int], phases: Callable[[str], list[str]]
) -> list[str]:
    """Compare what read_committed and read_uncommitted return with what was fed and with what the copiers printed."""
    expected = {f"{partition}.{number}" for partition, count in fed.items() for number in range(count)}
    counts = Counter(copy.source for copy in final)
    findings: list[tuple[str, Collection[object]]] = [
        ("lost", expected - counts.keys()),
        ("not from the input", counts.keys() - expected),
        ("more than once", [copy for copy in final if counts[copy.source] > 1]),
        ("out of order", _out_of_order(final)),
    ]
    for attempt, size in Counter(copy.attempt for copy in final).items():
        printed = phases(attempt)
        if "ending commit" not in printed:
            findings.append(("visible, though it was not to be committed", [f"{attempt} {printed}"]))
        if f"produced {size}" not in printed:
            findings.append(("visible in part", [f"{size} records of {attempt} {printed}"]))
    hidden = [copy for copy in set(everything) - set(final) if "ended commit" in phases(copy.attempt)]
    findings.append(("committed, but hidden", hidden))
    return [f"{what}: {some(found)}" for what, found in findings if found]


def some(values: Iterable[object]) -> str:
    named = [str(value) for value in sorted(values, key=str)]
    return f"{len(named)} ({', '.join(named[:MAX_NAMED])})"


def _out_of_order(copies: list[Copy]) -> list[Copy]:
    """Within an output partition, those of one input partition keep their order."""
    last: dict[tuple[int, str], int] = {}
    found = []
    for copy in sorted(copies):
        source, _, number = copy.source.partition(".")
        key = (copy.partition, source)
        if int(number) < last.get(key, -1):
            found.append(copy)
        last[key] = int(number)
    return found


def copy_of(message: Message) -> Copy:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None and offset is not None and value is not None
    return Copy(partition, offset, value.decode())
