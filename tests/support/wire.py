"""One raw connection to a broker, for tests that send bytes that no client would send."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from gregor.protocol.client import RequestCodec
from gregor.protocol.messages import ApiMessage
from gregor.protocol.sync_client import ConnectionEnded, SyncConnection

TIMEOUT_S = 60.0


def request_bytes(request: ApiMessage, version: int, correlation_id: int, client_id: str | None = "raw") -> bytes:
    """A whole request frame."""
    return bytes(RequestCodec(request.API_KEY, version, client_id).frame(request, correlation_id))


class RawConnection(SyncConnection):
    """To a broker of this machine, with a limit on every wait."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        super().__init__(host, port, "raw", TIMEOUT_S, TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def name(self) -> str:
        """This end's address, as the broker's log names it."""
        host, port = self.socket.getsockname()[:2]
        return f"{host}:{port}"

    def expect(self, correlation_id: int, api_key: int, version: int) -> None:
        """How to read the answer to a request that went out by `send_bytes`."""
        self._requests.expect(correlation_id, api_key, version)

    def send_bytes(self, data: bytes) -> None:
        """Sends any bytes; that the broker has already closed the connection is no error here."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def receive(self) -> tuple[int, Any]:
        """The next answer: its correlation id and the message, which must fill its frame. Raises ConnectionEnded."""
        try:
            data = self.receive_frame()
        except ConnectionResetError:
            raise ConnectionEnded from None
        correlation_id, answer, end = self._requests.response(data)
        assert end == len(data), f"{len(data) - end} bytes after the answer"
        return correlation_id, answer

    ask = SyncConnection.exchange

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
        """Return the bytes that arrive until the broker closes the connection; fail if it does not."""
        found = b""
        try:
            while part := self.socket.recv(65536):
                found += part
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise AssertionError(f"the connection is still open after {TIMEOUT_S:.0f} s") from None
        return found


def ask(port: int, request: ApiMessage, version: int, timeout_s: float = TIMEOUT_S, host: str = "127.0.0.1") -> Any:
    """Return the response of this very broker, on a connection of its own: a client would send the request to the
    controller, or to a leader."""
    with RawConnection(port, host) as connection:
        connection.socket.settimeout(timeout_s)
        return connection.ask(request, version)


def ask_at(address: str, request: ApiMessage, version: int, timeout_s: float = TIMEOUT_S) -> Any:
    """Return the response of the broker at HOST:PORT, on a connection of its own."""
    host, _, port = address.rpartition(":")
    return ask(int(port), request, version, timeout_s, host)


def memory_kb(pid: int) -> int:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise ValueError(f"process {pid} has no VmRSS")
