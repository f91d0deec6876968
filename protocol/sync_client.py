"""A synchronous connection to one broker: the socket around `protocol.client`, without an event loop.

It raises the errors of a socket (TimeoutError and OSError), ConnectionEnded, AuthenticationFailed, and MalformedMessage
if the other side does not respond as a Kafka broker does. After any of these the connection must not be used any more:
a response that arrives late would be read as that of the next request.
"""

from __future__ import annotations

import math
import socket
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.client import CORRELATION_ID_BYTES, InFlightRequests, VersionRanges
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from gregor.protocol.messages import ApiMessage, ApiVersionsResponse
    from gregor.protocol.sasl.mechanism import ClientMechanism

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
_RECEIVED_AT_ONCE_BYTES = 1024 * 1024
_API_VERSIONS_WITH_FEATURES = 3
_ERROR_CODE_BYTES = 2


class ConnectionEnded(ConnectionError):
    """The broker closed the connection."""


class SyncConnection:
    """Sends requests and receives their responses; a context manager."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str | None,
        connect_timeout_s: float,
        timeout_s: float,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        """`timeout_s` limits each wait for bytes, `connect_timeout_s` a TLS handshake too. A connection with SASL needs
        `log_in` before other requests."""
        self.socket = _opened(host, port, connect_timeout_s, security)
        self.socket.settimeout(timeout_s)
        self._requests = InFlightRequests(client_id)
        self._security = security
        self._host = host
        self._mechanism: ClientMechanism | None = None
        self._offered: VersionRanges = {}
        self._authenticated_until_s = math.inf

    def log_in(self, offered: VersionRanges) -> None:
        """Authenticate where the connection has SASL; it then authenticates again before a session ends (KIP-368).

        `offered` are the versions of the broker. Raises AuthenticationFailed and UnsupportedVersion, too.
        """
        if self._security.new_mechanism is not None:
            self._offered = offered
            self._mechanism = self._security.new_mechanism(self._host)
            self._authenticate()

    def _authenticate(self) -> None:
        from gregor.protocol.sasl.login import REAUTHENTICATE_AT, login

        assert self._mechanism is not None
        self._authenticated_until_s = math.inf
        log_in = login(self._mechanism, self._offered)
        request, version = next(log_in)
        while True:
            response = self.exchange(request, version)
            try:
                request, version = log_in.send(response)
            except StopIteration as end:
                if end.value.lifetime_ms:
                    self._authenticated_until_s = time.monotonic() + end.value.lifetime_ms / 1000 * REAUTHENTICATE_AT
                return

    def send(self, request: ApiMessage, version: int) -> int:
        """Send a request without waiting for its response; return its correlation id."""
        if time.monotonic() >= self._authenticated_until_s and not self._requests.any:
            self._authenticate()
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
        parts, received = [], 0
        while received < size:
            part = self.socket.recv(min(size - received, _RECEIVED_AT_ONCE_BYTES))
            if not part:
                raise ConnectionEnded(f"after {received} of {size} bytes")
            parts.append(part)
            received += len(part)
        return b"".join(parts)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _opened(host: str, port: int, timeout_s: float, security: ChannelSecurity) -> socket.socket:
    try:
        opened = socket.create_connection((host, port), timeout=timeout_s)
    except UnicodeError:  # a label is empty or longer than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is not the name of a host") from None
    if security.tls_context is None:
        return opened
    try:
        encrypted: socket.socket = security.tls_context().wrap_socket(opened, server_hostname=host)
    except BaseException:
        opened.close()
        raise
    return encrypted
