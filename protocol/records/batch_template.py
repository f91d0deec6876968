"""A batch of records that is written again and again, of which only some numbers and the time change.

All of them have eight bytes, so the other bytes of the batch stay where and what they are. `fill` gives the bytes that
`build_batch` would make of the records, at a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

from gregor.protocol.records.batch import ATTRIBUTES_AT, CRC_AT
from gregor.protocol.records.checksum import crc32c
from gregor.protocol.records.int64_fields import int64_positions

_INT64 = Struct(">q")
_UINT32 = Struct(">I")

BuildBatch = Callable[[Sequence[int], int], bytearray]
"""(numbers, time in ms) -> the batch, made by `build_batch`."""


class BatchTemplate:
    """The bytes of the batch. One object serves all times, so a filled batch is valid until the next one."""

    __slots__ = ("_batch", "_number_positions", "_time_positions", "_view")

    def __init__(self, batch: bytearray, number_positions: Sequence[tuple[int, ...]], times: tuple[int, ...]) -> None:
        self._batch = batch
        self._view = memoryview(batch)
        self._number_positions = tuple(number_positions)
        self._time_positions = times

    @classmethod
    def of(cls, build: BuildBatch, count: int) -> BatchTemplate | None:
        """Return the template of the batches that `build` makes of `count` numbers; None if more than the numbers, the
        time and the checksum differ between them."""

        def without_checksum(numbers: Sequence[int]) -> bytearray:
            batch = build(numbers[:count], numbers[count])
            batch[CRC_AT:ATTRIBUTES_AT] = bytes(ATTRIBUTES_AT - CRC_AT)
            return batch

        positions = int64_positions(without_checksum, count + 1)
        if positions is None:
            return None
        return cls(build([0] * count, 0), positions[:count], positions[count])

    def fill(self, numbers: Sequence[int], time_ms: int) -> bytearray:
        """Return the batch with these numbers and this time. Its base offset is 0 until a log sets it; the leader
        epoch, which the log sets too, may be one of before."""
        batch, pack = self._batch, _INT64.pack_into
        pack(batch, 0, 0)
        for position in self._time_positions:
            pack(batch, position, time_ms)
        for positions, number in zip(self._number_positions, numbers, strict=True):
            for position in positions:
                pack(batch, position, number)
        _UINT32.pack_into(batch, CRC_AT, crc32c(self._view[ATTRIBUTES_AT:]))
        return batch
