"""A dict whose entries are visited in short steps (protocol.turns) while entries are added and removed.

A copy of thousands of entries, such as list(logs.values()), counts a reference in each key and value, and so touches
the memory of all of them in one step: 12 to 60 ms for 10,000 partitions on a virtual machine that had not used that
memory for a second, measured. Here an entry is touched when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class WalkableDict(dict[KeyT, ValueT]):
    """Reads cost what those of a dict cost. `changes` counts the entries that were set and removed."""

    __slots__ = ("_keys", "_removed", "changes")

    def __init__(self, entries: Iterable[tuple[KeyT, ValueT]] = ()) -> None:
        super().__init__()
        self._keys: list[KeyT] = []
        """In the order in which they were added; some of them are there no more, or twice, if any was `_removed`."""
        self._removed = False
        self.changes = 0
        for key, value in entries:
            self[key] = value

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        if key not in self:
            self._keys.append(key)
        super().__setitem__(key, value)
        self.changes += 1

    def __delitem__(self, key: KeyT) -> None:
        super().__delitem__(key)
        self._removed = True
        self.changes += 1

    def _refuse(self, *_args: object, **_more: object) -> NoReturn:
        """Raise TypeError: entries are set by `[key] = value` and removed by `del`, which note it."""
        raise TypeError("a WalkableDict is changed by [key] = value and by del alone")

    pop = popitem = clear = update = setdefault = __ior__ = _refuse

    def walk(self) -> Iterator[tuple[KeyT, ValueT]]:
        """Yield the entries of the keys that the dict has now, each with the value that it has in its turn; a key that
        was removed before its turn is left out. After a removal the next walk begins with a copy of the keys."""
        keys = self._present_keys()
        for index in range(len(keys)):
            key = keys[index]
            if key in self:
                yield key, self[key]

    def walk_blocks(self, size: int) -> Iterator[list[ValueT]]:
        """Yield the values of the same entries, in blocks of at most `size`."""
        keys = self._present_keys()
        end = len(keys)
        for first in range(0, end, size):
            if block := [self[key] for key in keys[first : min(first + size, end)] if key in self]:
                yield block

    def _present_keys(self) -> list[KeyT]:
        """Return a list of the keys that the dict has now, which grows by those that are added later."""
        if self._removed:
            self._keys = list(self)
            self._removed = False
        return self._keys
