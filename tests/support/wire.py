"""One raw connection to a broker, for tests that say on the wire what no client would."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any

from gregor.protocol.messages import ApiMessage, RequestHeader, ResponseHeader, request_header_version, response_class
from gregor.protocol.messages import response_header_version as answer_header_version

TIMEOUT_S = 20.0


class Closed(Exception):
    """The broker ended the connection."""


def request_bytes(request: ApiMessage, version: int, correlation_id: int) -> bytes:
    """A whole request frame."""
    key = request.API_KEY
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id="raw"
    )
    body = header.encode(request_header_version(key, version)) + request.encode(version)
    return struct.pack(">i", len(body)) + body


class RawConnection:
    """Blocking, with a limit on every wait; a context manager."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0

    @property
    def name(self) -> str:
        """This end's address, as the broker's log names it."""
        host, port = self.socket.getsockname()[:2]
        return f"{host}:{port}"

    def send(self, request: ApiMessage, version: int) -> int:
        """Sends a request and returns its correlation id."""
        self._correlation_id += 1
        self._sent[self._correlation_id] = (request.API_KEY, version)
        self.socket.sendall(request_bytes(request, version, self._correlation_id))
        return self._correlation_id

    def expect(self, correlation_id: int, api_key: int, version: int) -> None:
        """How to read the answer to a request that went out by `send_bytes`."""
        self._sent[correlation_id] = (api_key, version)

    def send_bytes(self, data: bytes) -> None:
        """Sends any bytes; that the broker has already closed the connection is no error here."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def receive(self) -> tuple[int, Any]:
        """The next answer: its correlation id and the message."""
        [size] = struct.unpack(">i", self._read(4))
        data = self._read(size)
        [correlation_id] = struct.unpack_from(">i", data)
        key, version = self._sent.pop(correlation_id)
        header, position = ResponseHeader.decode(data, answer_header_version(key, version))
        message = response_class(key)
        assert message is not None
        answer, end = message.decode(data, version, position)
        assert end == len(data), f"{len(data) - end} bytes after the answer"
        return header.correlation_id, answer

    def ask(self, request: ApiMessage, version: int) -> Any:
        """Sends a request and returns its answer."""
        wanted = self.send(request, version)
        correlation_id, answer = self.receive()
        assert correlation_id == wanted
        return answer

    def answered(self) -> bool:
        """Whether something is here to be received, the end included."""
        self.socket.settimeout(0)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_S)
        return True

    def wait_for_end(self) -> bytes:
        """What still comes until the broker closes the connection; fails when it does not."""
        found = b""
        try:
            while part := self.socket.recv(65536):
                found += part
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise AssertionError(f"the connection is still open after {TIMEOUT_S:.0f} s") from None
        return found

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed(f"after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def ask(port: int, request: ApiMessage, version: int, timeout_s: float = TIMEOUT_S) -> Any:
    """The answer of this very broker, on a connection of its own: a client would ask the controller, or a leader."""
    with RawConnection(port) as connection:
        connection.socket.settimeout(timeout_s)
        return connection.ask(request, version)


def memory_kb(pid: int) -> int:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise ValueError(f"process {pid} has no VmRSS")
