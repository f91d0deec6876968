"""A synchronous connection to one broker: the socket around `protocol.client`, without an event loop.

It raises the errors of a socket (TimeoutError and OSError), ConnectionEnded, and MalformedMessage if the other side
does not respond as a Kafka broker does. After any of these the connection must not be used any more: a response that
arrives late would be read as that of the next request.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gregor.protocol.client import CORRELATION_ID_BYTES, InFlightRequests
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from gregor.protocol.messages import ApiMessage, ApiVersionsResponse

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
_RECEIVED_AT_ONCE_BYTES = 1024 * 1024
_API_VERSIONS_WITH_FEATURES = 3
_ERROR_CODE_BYTES = 2


class ConnectionEnded(ConnectionError):
    """The broker closed the connection."""


class SyncConnection:
    """Sends requests and receives their responses; a context manager."""

    def __init__(self, host: str, port: int, client_id: str | None, connect_timeout_s: float, timeout_s: float) -> None:
        """`timeout_s` limits each wait for bytes."""
        self.socket = socket.create_connection((host, port), timeout=connect_timeout_s)
        self.socket.settimeout(timeout_s)
        self._requests = InFlightRequests(client_id)

    def send(self, request: ApiMessage, version: int) -> int:
        """Send a request without waiting for its response; return its correlation id."""
        correlation_id, frame = self._requests.frame(request, version)
        self.socket.sendall(frame)
        return correlation_id

    def receive(self) -> tuple[int, Any]:
        """Receive the next response: return its correlation id and the message."""
        correlation_id, message, _ = self._requests.response(self.receive_frame())
        return correlation_id, message

    def exchange(self, request: ApiMessage, version: int) -> Any:
        """Send a request and return its response. No other request may be in flight."""
        sent = self.send(request, version)
        answered, message = self.receive()
        if answered != sent:
            raise MalformedMessage(f"it answers request {answered}, not {sent}")
        return message

    def api_versions(self, client_name: str, client_version: str) -> ApiVersionsResponse:
        """Return what the broker offers; version 3 is sent first, then version 0 (KIP-511).

        A broker that does not know version 3 responds with an error and a body of version 0.
        """
        request = ApiVersionsRequest(client_software_name=client_name, client_software_version=client_version)
        self.send(request, _API_VERSIONS_WITH_FEATURES)
        frame = self.receive_frame()
        code = frame[CORRELATION_ID_BYTES : CORRELATION_ID_BYTES + _ERROR_CODE_BYTES]
        if int.from_bytes(code, signed=True) == ErrorCode.UNSUPPORTED_VERSION:
            self._requests.forget()
            response: ApiVersionsResponse = self.exchange(ApiVersionsRequest(), 0)
            return response
        response = self._requests.response(frame)[1]
        return response

    def receive_frame(self) -> bytes:
        """Receive the bytes of the next response, without its size."""
        size = int.from_bytes(self._receive(SIZE_BYTES), signed=True)
        if not 0 <= size <= MAX_RESPONSE_BYTES:
            raise MalformedMessage(f"a response of {size} bytes")
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(min(size - len(data), _RECEIVED_AT_ONCE_BYTES))
            if not part:
                raise ConnectionEnded(f"after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
