"""Server side of a Kafka connection, without IO: the requests in received bytes, and the order of their responses.

A frame is `int32 size` and then `size` bytes; those of a request begin with

    int16 api_key | int16 api_version | int32 correlation_id | nullable string client_id | [tagged fields] | body

(Kafka protocol guide, "Protocol Primitives" and "Request Header"). Responses carry the correlation id and must be sent
in the order in which the requests of the connection arrived, in whatever order they are ready: `ResponseQueue` keeps
that order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Generic, TypeVar

from gregor.protocol.deferred import Deferred

_SIZE = Struct(">i")
_HEAD = Struct(">hhi")
FRAME_HEAD = Struct(">ihhi")
"""Size, api key, api version and correlation id of a request that begins with its size field."""

SIZE_BYTES = _SIZE.size
HEAD_BYTES = _HEAD.size
_REQUEST_HEAD_BYTES = FRAME_HEAD.size
RESPONSE_HEADS = (bytes(SIZE_BYTES + 4), bytes(SIZE_BYTES + 5))
"""Size field and response header, all zero, by header version: the correlation id, and from 1 on no tagged fields."""
MAX_REQUESTS_AT_ONCE = 16
"""Limits how many requests are parsed again each time that the first of them has to wait."""

Chunk = TypeVar("Chunk")


class FramingError(ValueError):
    """The peer does not follow the protocol: its bytes cannot be a frame. The connection must be closed."""


def frame_size(buffer: bytes | bytearray | memoryview, position: int, max_frame_bytes: int) -> int:
    """Return the bytes of the frame whose size field starts at `position`, the field itself not counted.

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
    """Return (api_key, api_version, correlation_id) of the request that starts at `position` and is complete."""
    return _HEAD.unpack_from(buffer, position)


def request_header(
    buffer: bytes | bytearray | memoryview, position: int, end: int, header_version: int
) -> tuple[str | None, int]:
    """Return the client id of a request whose head ends at `position`, and the position of its message. Raises
    FramingError.

    The client id is a nullable string of int16 length, also in the flexible version (KIP-482 left it so).
    """
    if header_version == 0:
        return None, position
    if position + 2 > end:
        raise FramingError("a request ends inside its header")
    client_id = None
    length = int.from_bytes(buffer[position : position + 2], "big", signed=True)
    position += 2
    if length != -1:
        if length < 0 or position + length > end:
            raise FramingError(f"a client id of {length} bytes does not fit its request")
        try:
            client_id = str(buffer[position : position + length], "utf-8")
        except UnicodeDecodeError as error:
            raise FramingError(f"a client id is not UTF-8: {error.reason}") from None
        position += length
    if header_version >= 2:
        if position < end and buffer[position] == 0:
            return client_id, position + 1
        position = skip_tagged_fields(buffer, position, end)
    return client_id, position


def skip_tagged_fields(buffer: bytes | bytearray | memoryview, position: int, end: int) -> int:
    """Return the position after the tagged fields of a flexible request header. Raises FramingError."""
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


class Receiver:
    """Splits the bytes of one connection into requests: bytes in, frames out.

    The caller owns the memory and limits it. Between two reads the bytes from `begin` to `end` are received and not
    handled; `frame_bytes` is the size of the frame that begins there, its size field included, and 0 until it is known.
    """

    __slots__ = ("begin", "end", "frame_bytes", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        """`max_frame_bytes` is socket.request.max.bytes; the size field itself does not count."""
        self.max_frame_bytes = max_frame_bytes
        self.begin = self.end = self.frame_bytes = 0

    def continue_from(self, other: Receiver) -> None:
        """Continue with the bytes that another receiver has not handled yet."""
        self.begin, self.end, self.frame_bytes = other.begin, other.end, other.frame_bytes

    @property
    def is_whole(self) -> bool:
        """Return whether a complete frame is kept."""
        return self.end - self.begin >= self.frame_bytes > 0

    def requests(self, view: bytes | bytearray | memoryview, begin: int, end: int) -> list[tuple[int, int, int, int]]:
        """Return the heads (FRAME_HEAD) of the complete requests that follow one another from the start of
        `view[begin:end]`, MAX_REQUESTS_AT_ONCE at most; the next one begins `SIZE_BYTES + size` after each.

        Raises FramingError if the first is no request. An invalid one behind others raises when it is the first.
        """
        if end - begin < _REQUEST_HEAD_BYTES:
            return []
        head = FRAME_HEAD.unpack_from(view, begin)
        if begin + SIZE_BYTES + head[0] == end and head[0] <= self.max_frame_bytes:
            return [head]  # the usual one, alone in its read
        heads: list[tuple[int, int, int, int]] = []
        while end - begin >= _REQUEST_HEAD_BYTES:
            head = FRAME_HEAD.unpack_from(view, begin)
            size = head[0]
            if not HEAD_BYTES <= size <= self.max_frame_bytes:
                if heads:
                    break
                frame_size(view, begin, self.max_frame_bytes)
            begin += SIZE_BYTES + size
            if begin > end:
                break
            heads.append(head)
            if begin == end or len(heads) == MAX_REQUESTS_AT_ONCE:
                break
        return heads

    def keep(self, view: bytes | bytearray | memoryview, begin: int, end: int) -> None:
        """Note that `view[begin:end]` is not handled and moves to the start of a buffer. Raises FramingError."""
        known = end - begin >= SIZE_BYTES
        self.frame_bytes = SIZE_BYTES + frame_size(view, begin, self.max_frame_bytes) if known else 0
        self.begin, self.end = 0, end - begin

    def clear(self) -> None:
        """Note that no bytes are kept."""
        self.begin = self.end = self.frame_bytes = 0


class ResponseQueue(Generic[Chunk]):
    """Puts responses, completed in any order, into the order of their requests.

    A response has its position as a Deferred of its chunks (none for a Produce with acks=0), added when its request is
    dispatched. Whenever one of them is completed, `ready()` returns the chunks that may be sent, in order.
    """

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: deque[Deferred[Sequence[Chunk]]] = deque()

    def ready(self) -> list[Chunk]:
        """Remove the completed responses that do not wait for an earlier one; return their chunks."""
        ready: list[Chunk] = []
        pending = self.pending
        while pending and (chunks := pending[0].value) is not None:
            ready.extend(chunks)
            pending.popleft()
        return ready
