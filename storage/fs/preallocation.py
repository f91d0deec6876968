"""Room on the disk for bytes to come, for topics with `preallocate`.

Kafka gives a new segment file its full size at once, as a hole on most file systems, and cuts it when the segment is
closed; a crash leaves zeros behind the batches, which recovery cuts off. Here the blocks are really taken, a piece
ahead of the appends, and the file's size stays that of its batches (Linux's FALLOC_FL_KEEP_SIZE): nothing is left
behind but some blocks, and no piece takes long enough to hold anybody up.
"""

from __future__ import annotations

PIECE_BYTES = 32 * 1024 * 1024

_KEEP_SIZE = 1


def reserve(descriptor: int, position: int, size_bytes: int) -> bool:
    """Takes the blocks of so many bytes from a position on. False where there is no room, or no such call."""
    import ctypes  # some megabytes, which few brokers need

    try:
        fallocate = ctypes.CDLL(None).fallocate
    except AttributeError:
        return False
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(fallocate(descriptor, _KEEP_SIZE, position, size_bytes) == 0)
