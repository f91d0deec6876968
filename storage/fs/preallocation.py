"""Room on the disk for bytes to come, for topics with `preallocate`.

Kafka gives a new segment file its full size at once, as a hole on most file systems, and truncates it when the segment
is closed; a crash leaves zeros behind the batches, which recovery removes. Here the blocks are really allocated, a
piece ahead of the appends, and the size of the file stays that of its batches (Linux's FALLOC_FL_KEEP_SIZE): a crash
leaves only some blocks, and no piece is large enough to delay an append.
"""

from __future__ import annotations

PIECE_BYTES = 32 * 1024 * 1024

_KEEP_SIZE = 1


def reserve(descriptor: int, position: int, size_bytes: int) -> bool:
    """Allocate the blocks of this many bytes from a position on. False where there is no room, or no such call."""
    import ctypes  # some megabytes, which few brokers need

    try:
        fallocate = ctypes.CDLL(None).fallocate
    except AttributeError:
        return False
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(fallocate(descriptor, _KEEP_SIZE, position, size_bytes) == 0)
