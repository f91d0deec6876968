"""What a copy that is being made in another data folder holds already, for a start after a stop or a crash.

It stands in the copy's MOVED_FILE (storage.folders.move) as JSON: of each segment that was copied whole and synced the
sizes of its three files, and which file it was copied from. A segment of that name may have been compacted, cut short
or made anew since; then its .log file is another one, or was changed, and the copy of it is worth nothing.
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
    """By base offset."""
    return json.dumps({"version": VERSION, "segments": list(segments.items())}, separators=(",", ":")).encode()


def parse_progress(data: bytes) -> dict[int, CopiedSegment]:
    """What cannot be read says nothing: an empty file, of a move that had only begun, or one that a crash has left."""
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
