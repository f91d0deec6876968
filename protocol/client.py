"""Client side of a Kafka connection, without IO: frames of requests, their responses, and the choice of the version.

The frame of a request is

    int32 size | int16 api_key | int16 api_version | int32 correlation_id | nullable string client_id | [tags] | body

and that of its response `int32 size | int32 correlation_id | [tags] | body`. A broker answers the requests of one
connection in their order; the correlation id shows that a response belongs to the request.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.framing import FRAME_HEAD, SIZE_BYTES
from gregor.protocol.messages import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_class,
    response_header_version,
)

if TYPE_CHECKING:
    from gregor.protocol.messages import ApiMessage, ApiVersionsResponse

CORRELATION_ID_BYTES = 4
MAX_CORRELATION_ID = 0x7FFF_FFFF

_FLEXIBLE_HEADER = Struct(">iB")
"""Correlation id and count of tagged fields: a response header as brokers write it, without any."""

VersionRanges = Mapping[int, tuple[int, int]]
"""By API key the oldest and the newest version."""


class UnsupportedVersion(Exception):
    """No version of an API is known to both sides. `offered` is None if the broker does not offer the API."""

    def __init__(self, api_key: int, offered: tuple[int, int] | None, known: tuple[int, int]) -> None:
        self.api_name = ApiKey(api_key).name
        self.offered = offered
        self.known = known
        oldest, newest = offered or (0, -1)
        super().__init__(
            f"it offers {self.api_name} in versions {oldest} to {newest}, needed is one of {known[0]} to {known[1]}"
        )


def version_ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    """Return the versions that a broker offers."""
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


def newest_version(offered: VersionRanges, kind: type[ApiMessage] | ApiMessage, max_version: int | None = None) -> int:
    """Return the newest version of a request that both sides know, up to `max_version`. Raises UnsupportedVersion."""
    known = kind.MIN_VERSION, kind.MAX_VERSION if max_version is None else max_version
    theirs = offered.get(kind.API_KEY)
    if theirs is not None:
        version = min(theirs[1], known[1])
        if version >= max(theirs[0], known[0]):
            return version
    raise UnsupportedVersion(kind.API_KEY, theirs, known)


class RequestCodec:
    """Requests of one API in one version, from one client: their frames, and their responses.

    Record batches in a decoded response are views of the bytes that were given.
    """

    __slots__ = ("_decode", "_decode_in_steps", "_flexible", "_head", "_key", "_version")

    def __init__(self, api_key: int, version: int, client_id: str | None) -> None:
        header = RequestHeader(request_api_key=api_key, request_api_version=version, client_id=client_id)
        kind = response_class(api_key)
        assert kind is not None
        self._key = api_key
        self._version = version
        self._head = bytes(SIZE_BYTES) + header.encode(request_header_version(api_key, version))
        self._flexible = response_header_version(api_key, version) > 0
        self._decode = kind.decode
        self._decode_in_steps = kind.decode_in_steps

    def frame(self, request: ApiMessage, correlation_id: int) -> bytearray:
        """Return the frame of a request, with its size."""
        frame = bytearray(self._head)
        request.encode_into(frame, self._version)
        FRAME_HEAD.pack_into(frame, 0, len(frame) - SIZE_BYTES, self._key, self._version, correlation_id)
        return frame

    def frame_in_steps(self, request: ApiMessage, correlation_id: int) -> Generator[None, None, bytearray]:
        frame = bytearray(self._head)
        yield from request.encode_in_steps(frame, self._version)
        FRAME_HEAD.pack_into(frame, 0, len(frame) - SIZE_BYTES, self._key, self._version, correlation_id)
        return frame

    def decode(self, response: bytes | memoryview, correlation_id: int) -> tuple[Any, int]:
        """Decode a response, given without its size; return the message and its end position. Raises MalformedMessage,
        also if the response is that of another request."""
        if self._flexible and len(response) >= _FLEXIBLE_HEADER.size:
            found, tags = _FLEXIBLE_HEADER.unpack_from(response)
            if found == correlation_id and not tags:
                return self._decode(response, self._version, _FLEXIBLE_HEADER.size)
        return self._decode(response, self._version, self._body_at(response, correlation_id))

    def decode_in_steps(
        self, response: bytes | memoryview, correlation_id: int
    ) -> Generator[None, None, tuple[Any, int]]:
        return (yield from self._decode_in_steps(response, self._version, self._body_at(response, correlation_id)))

    def _body_at(self, response: bytes | memoryview, correlation_id: int) -> int:
        header, position = ResponseHeader.decode(response, int(self._flexible))
        if header.correlation_id != correlation_id:
            raise MalformedMessage(f"it answers request {header.correlation_id}, not {correlation_id}")
        return position


class InFlightRequests:
    """The requests of one connection that have no response yet."""

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._sent: dict[int, RequestCodec] = {}

    def frame(self, request: ApiMessage, version: int) -> tuple[int, bytearray]:
        """Return the correlation id of a request, and its frame."""
        codec = RequestCodec(request.API_KEY, version, self._client_id)
        correlation_id = next(self._correlation_ids) & MAX_CORRELATION_ID
        frame = codec.frame(request, correlation_id)
        self._sent[correlation_id] = codec
        return correlation_id, frame

    def expect(self, correlation_id: int, api_key: int, version: int) -> None:
        """Note that a request was sent whose frame was made elsewhere."""
        self._sent[correlation_id] = RequestCodec(api_key, version, self._client_id)

    @property
    def any(self) -> bool:
        """Whether a response is still to come."""
        return bool(self._sent)

    def forget(self) -> None:
        """Forget the requests in flight: their responses were read elsewhere."""
        self._sent.clear()

    def response(self, response: bytes | memoryview) -> tuple[int, Any, int]:
        """Return the correlation id of a response (given without its size), the message, and its end position. Raises
        MalformedMessage, also if no such request was sent."""
        correlation_id = int.from_bytes(response[:CORRELATION_ID_BYTES])
        codec = self._sent.pop(correlation_id, None)
        if codec is None:
            raise MalformedMessage(f"it answers request {correlation_id}, which was not sent")
        return correlation_id, *codec.decode(response, correlation_id)
