"""The last offset of each key, in bounded memory: 24 bytes a slot, whatever the size of the keys.

A slot holds 128 bits of the SipHash of a key in place of the key, so that two keys collide with a probability of
n^2 / 2^128. (Kafka's SkimpyOffsetMap uses 128 bits of MD5.) The slots are an open-addressing table with double hashing;
their number is a prime, so that every step width reaches all of them.
"""

from __future__ import annotations

from array import array

SLOT_BYTES = 24
_SALT = b"\x01"


class OffsetMap:
    """`put` keys with ascending offsets; nothing is ever removed."""

    __slots__ = ("_first", "_offsets", "_second", "entries", "latest_offset", "limit", "slots")

    def __init__(self, memory_bytes: int, load_factor: float, max_keys: int) -> None:
        """`max_keys`: the number of keys that are possible, so that a small log needs little memory. ValueError when
        not a single key fits."""
        wanted = int(max_keys / min(max(load_factor, 0.01), 1.0)) + 2
        wanted += wanted // 8 + 8  # the next prime below is not further away than that
        self.slots = _prime_up_to(max(3, min(memory_bytes // SLOT_BYTES, wanted)))
        self.limit = int(self.slots * load_factor)
        """The maximum number of keys."""
        if memory_bytes < 3 * SLOT_BYTES or self.limit < 1:
            raise ValueError(
                f"log.cleaner.dedupe.buffer.size leaves {memory_bytes} bytes for a key map, which do not hold one key"
            )
        self.limit = min(self.limit, self.slots - 1)
        self.entries = 0
        self.latest_offset = -1
        """All records up to this offset are in the map (`covers`)."""
        self._first = array("q", bytes(8)) * self.slots
        self._second = array("q", bytes(8)) * self.slots
        self._offsets = array("q", (-1,)) * self.slots

    @property
    def full(self) -> bool:
        return self.entries >= self.limit

    def covers(self, offset: int) -> None:
        """Note that all records up to this offset are in the map."""
        self.latest_offset = max(self.latest_offset, offset)

    def put(self, key: bytes, offset: int) -> None:
        """Set the last offset of a key. The map must not be full."""
        first, second = hash(key), hash(key + _SALT)
        slots, offsets = self.slots, self._offsets
        slot = first % slots
        step = 0
        while offsets[slot] >= 0:
            if self._first[slot] == first and self._second[slot] == second:
                offsets[slot] = offset
                return
            if not step:
                step = 1 + second % (slots - 1)
            slot = (slot + step) % slots
        self._first[slot] = first
        self._second[slot] = second
        offsets[slot] = offset
        self.entries += 1

    def get(self, key: bytes) -> int:
        """Return the last offset of a key; -1 if it was never put."""
        first, second = hash(key), hash(key + _SALT)
        slots, offsets = self.slots, self._offsets
        slot = first % slots
        step = 0
        while (offset := offsets[slot]) >= 0:
            if self._first[slot] == first and self._second[slot] == second:
                return offset
            if not step:
                step = 1 + second % (slots - 1)
            slot = (slot + step) % slots
        return -1


def _prime_up_to(number: int) -> int:
    """Return the largest prime that is at most `number` (at least 3)."""
    candidate = number if number % 2 else number - 1
    while any(candidate % divisor == 0 for divisor in range(3, int(candidate**0.5) + 1, 2)):
        candidate -= 2
    return candidate
