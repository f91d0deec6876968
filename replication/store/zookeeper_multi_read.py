"""ZooKeeper's request that reads many nodes at once (`multiRead`, since 3.6), which kazoo does not have.

Its format is that of a transaction of getData operations; but each has its own result, and it sets no watches. Source
of the format: ZooKeeper's MultiOperationRecord, MultiResponse. A server before 3.6 ends the session that sends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol.serialization import GetData, MultiHeader, int_struct, stat_struct

Found = tuple[bytes, Any] | Exception | None
"""Data and kazoo's ZnodeStat; None of a node that does not exist."""

_HEADER = MultiHeader(GetData.type, False, -1).serialize()
_END = MultiHeader(-1, True, -1).serialize()
_FAILED = -1


class MultiRead:
    """A request as kazoo's connection sends them. The paths are absolute, with the chroot."""

    type = 22

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = list(paths)

    def serialize(self) -> bytearray:
        out = bytearray()
        for path in self._paths:
            out += _HEADER
            out += GetData(path, None).serialize()
        out += _END
        return out

    def deserialize(self, data: Any, position: int) -> list[Found]:
        """Return the results in the order of the paths."""
        found: list[Found] = []
        header, position = MultiHeader.deserialize(data, position)
        while not header.done:
            if header.type == _FAILED:
                code = int_struct.unpack_from(data, position)[0]
                position += int_struct.size
                found.append(None if code == NoNodeError.code else EXCEPTIONS[code]())
            else:
                content, stat = GetData.deserialize(data, position)
                # The data behind its length, which is -1 for none, and the stat.
                position += int_struct.size + len(content or b"") + stat_struct.size
                found.append((content or b"", stat))
            header, position = MultiHeader.deserialize(data, position)
        return found


def multi_read(client: Any, paths: Iterable[str]) -> Any:
    """Send the request by a KazooClient; returns kazoo's asynchronous result, a list of Found.

    kazoo has no public way to send a request of another type than its own: `_call` is the one by which its methods and
    transactions send theirs. An upper bound of kazoo's version in pyproject.toml keeps it as it is.
    """
    result = client.handler.async_result()
    client._call(MultiRead(client.chroot + path for path in paths), result)
    return result
