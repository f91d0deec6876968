"""The transactions of one log that are not decided for its readers yet.

An offset is unstable while the transaction that it belongs to is open, and then until the marker that ends the
transaction lies below the high watermark: a new leader might not have the marker. Consumers with
isolation.level=read_committed read below the last stable offset, the smaller one of the high watermark and the first
unstable offset. (Kafka's ProducerStateManager: ongoingTxns and unreplicatedTxns.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping


class Transactions:
    """Open and ended transactions of a log. A log without transactions has no such object."""

    __slots__ = ("_ended", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """Producer id -> first offset. A transaction begins at the end of the log, so the first offsets ascend."""
        self._ended: list[tuple[int, int]] = []
        """(offset of the marker, first offset) of those whose marker was not below the high watermark. Both ascend: a
        transaction is left out if one that began before it ends after it, as it decides nothing any more. So the first
        entry is the lowest, however many wait for a follower."""

    def __len__(self) -> int:
        """Return the number of open transactions."""
        return len(self._open)

    @property
    def ended_count(self) -> int:
        """The number of ended transactions that are not forgotten yet."""
        return len(self._ended)

    @property
    def first_offsets(self) -> Mapping[int, int]:
        """The first offset of the open transaction of each producer that has one."""
        return self._open

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note that the producer, which has no open transaction, begins one behind all others."""
        self._open[producer_id] = first_offset

    def stable_offset_after(self, producer_id: int, marker_offset: int) -> int:
        """Return the last stable offset once the transaction of this producer has ended with a marker at the offset,
        as the transaction index records it."""
        for other, first_offset in self._open.items():
            if other != producer_id:
                return first_offset
        return marker_offset + 1

    def end(self, producer_id: int, marker_offset: int, high_watermark: int) -> None:
        """Note that the open transaction of this producer has ended."""
        self._forget_committed(high_watermark)
        first_offset, ended = self._open.pop(producer_id), self._ended
        while ended and ended[-1][1] > first_offset:
            ended.pop()
        ended.append((marker_offset, first_offset))

    def first_unstable(self, high_watermark: int) -> int | None:
        """Return the first offset of all transactions that are not decided below this high watermark."""
        self._forget_committed(high_watermark)
        first = next(iter(self._open.values()), None)
        if self._ended and (first is None or self._ended[0][1] < first):
            return self._ended[0][1]
        return first

    def _forget_committed(self, high_watermark: int) -> None:
        ended = self._ended
        if ended and ended[0][0] < high_watermark:
            del ended[: bisect_left(ended, (high_watermark,))]
