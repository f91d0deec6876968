"""An identity provider of tests on the loopback, which responds to requests for tokens (RFC 6749 section 4.4)."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

LIMIT_S = 30.0


class TokenRequest(NamedTuple):
    """One request of a client."""

    path: str
    headers: dict[str, str]
    body: str


class FakeProvider:
    """`answer` returns the status and the body of each response."""

    def __init__(self, answer: Callable[[], tuple[int, bytes]], port: int, scheme: str) -> None:
        self.answer = answer
        self.requests: list[TokenRequest] = []
        self.url = f"{scheme}://localhost:{port}/token?tenant=a"


def token_body(token: str, **more: Any) -> bytes:
    return json.dumps({"access_token": token, "token_type": "Bearer", **more}).encode()


@contextmanager
def identity_provider(
    answer: Callable[[], tuple[int, bytes]], context: ssl.SSLContext | None = None
) -> Iterator[FakeProvider]:
    class Handler(BaseHTTPRequestHandler):
        timeout = LIMIT_S

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            provider.requests.append(TokenRequest(self.path, dict(self.headers), body))
            status, data = provider.answer()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            """Serve keys."""
            status, data = provider.answer()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that does not trust the provider ends its handshake."""

        def get_request(self) -> tuple[Any, Any]:
            opened, address = super().get_request()
            if context is not None:
                opened = context.wrap_socket(opened, server_side=True, do_handshake_on_connect=False)
            return opened, address

    server = Server(("127.0.0.1", 0), Handler)
    provider = FakeProvider(answer, server.server_port, "https" if context else "http")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join(LIMIT_S)
        server.server_close()
