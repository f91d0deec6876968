"""The progress of a copy in another data folder, for a start after a stop or a crash.

It is written to the copy's MOVED_FILE (storage.folders.move) as JSON: of each segment that was copied whole and synced
the sizes of its three files, and the identity of the file that it was copied from. A segment of that name may have been
compacted, truncated or replaced since; then its .log file is another one, or was changed, and the copy of it is void.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

VERSION = 1


class CopiedSegment(NamedTuple):
    sizes: tuple[int, int, int]
    """Of the .log file and of both indexes."""
    source: tuple[int, int, int]
    """`File.identity` of the .log file that it was copied from."""


def format_progress(segments: Mapping[int, CopiedSegment]) -> bytes:
    """Format the copied segments, by base offset."""
    return json.dumps({"version": VERSION, "segments": list(segments.items())}, separators=(",", ":")).encode()


def parse_progress(data: bytes) -> dict[int, CopiedSegment]:
    """Parse the copied segments. An unreadable file has none: it is empty when a move has only begun, or damaged by a
    crash."""
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            return {}
        return {
            _whole(base): CopiedSegment(_three(sizes), _three(source)) for base, (sizes, source) in content["segments"]
        }
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _three(numbers: list[int]) -> tuple[int, int, int]:
    first, second, third = (_whole(number) for number in numbers)
    return first, second, third


def _whole(number: object) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is no size, no offset and no identity")
    return number
