"""Server side of a Kafka connection, without IO: where requests lie in received bytes, in which order answers leave.

A frame is `int32 size` and then `size` bytes; those of a request begin with

    int16 api_key | int16 api_version | int32 correlation_id | nullable string client_id | [tagged fields] | body

(Kafka protocol guide, "Protocol Primitives" and "Request Header"). Answers carry the correlation id and must leave a
connection in the order in which its requests came in, however late each is ready: `ResponseQueue` keeps that order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Generic, TypeVar

_SIZE = Struct(">i")
_HEAD = Struct(">hhi")
FRAME_HEAD = Struct(">ihhi")
"""Size, api key, api version and correlation id of a request that begins with its size field."""

SIZE_BYTES = _SIZE.size
HEAD_BYTES = _HEAD.size

Chunk = TypeVar("Chunk")


class FramingError(ValueError):
    """The peer does not speak the protocol: what it sent cannot be a frame. The connection has to end."""


def frame_size(buffer: bytes | bytearray | memoryview, position: int, max_frame_bytes: int) -> int:
    """Bytes of the frame whose size field starts at `position`, the field itself not counted.

    Raises FramingError for a size that no request can have (smaller than its head) or that is above
    `max_frame_bytes` (`socket.request.max.bytes`).
    """
    (size,) = _SIZE.unpack_from(buffer, position)
    if HEAD_BYTES <= size <= max_frame_bytes:
        return int(size)
    if size > max_frame_bytes:
        raise FramingError(f"a request of {size} bytes is larger than socket.request.max.bytes={max_frame_bytes}")
    raise FramingError(f"a request of {size} bytes is too short to hold its header; the peer may not speak Kafka")


def request_head(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int, int]:
    """(api_key, api_version, correlation_id) of the request that starts at `position`; the frame must be whole."""
    return _HEAD.unpack_from(buffer, position)


def client_id_at(buffer: bytes | bytearray | memoryview, position: int, end: int) -> tuple[str | None, int]:
    """The nullable string client id behind a request head, and where it ends. Raises FramingError.

    It is an int16-length string in every header version, also in the flexible one (KIP-482 left it so).
    """
    if position + 2 > end:
        raise FramingError("a request ends inside its header")
    length = int.from_bytes(buffer[position : position + 2], "big", signed=True)
    position += 2
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise FramingError(f"a client id of {length} bytes does not fit its request")
    try:
        return bytes(buffer[position : position + length]).decode(), position + length
    except UnicodeDecodeError as error:
        raise FramingError(f"a client id is not UTF-8: {error.reason}") from None


def skip_tagged_fields(buffer: bytes | bytearray | memoryview, position: int, end: int) -> int:
    """Position after the tagged fields of a flexible request header. Raises FramingError."""
    count, position = _unsigned_varint(buffer, position, end)
    for _ in range(min(count, end - position)):
        _, position = _unsigned_varint(buffer, position, end)
        size, position = _unsigned_varint(buffer, position, end)
        position += size
        if position > end:
            raise FramingError("a tagged field of a request header is longer than its request")
    return position


def _unsigned_varint(buffer: bytes | bytearray | memoryview, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= end:
            raise FramingError("a request ends inside its header")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise FramingError("a varint of a request header is longer than 5 bytes")


class Slot(Generic[Chunk]):
    """The place of one answer in its connection's order; `chunks` is None until the answer is known."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: Sequence[Chunk] | None = None


class ResponseQueue(Generic[Chunk]):
    """Puts answers, known in any order, into the order of their requests.

    `open()` when a request is taken up, `fill()` when its answer is known (no chunks for a Produce with acks=0):
    what may be sent now comes back, in order.
    """

    __slots__ = ("slots",)

    def __init__(self) -> None:
        self.slots: deque[Slot[Chunk]] = deque()

    def open(self) -> Slot[Chunk]:
        slot: Slot[Chunk] = Slot()
        self.slots.append(slot)
        return slot

    def fill(self, slot: Slot[Chunk], chunks: Sequence[Chunk]) -> list[Chunk]:
        if slot.chunks is not None:
            raise ValueError("a request was answered twice")
        slot.chunks = chunks
        ready: list[Chunk] = []
        slots = self.slots
        while slots and (head := slots[0].chunks) is not None:
            ready.extend(head)
            slots.popleft()
        return ready
