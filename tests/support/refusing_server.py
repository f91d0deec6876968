"""A TLS server on the loopback that requires a certificate of its client, and refuses it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.certificates import Certificates

LIMIT_S = 30.0


@contextmanager
def refusing_server(certificates: Certificates) -> Iterator[int]:
    """Yield the port. A connection stays open behind its refusal until the end, so that the client can read it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # the client's handshake ends before the refusal
    context.load_cert_chain(certificates.server_file)
    context.load_verify_locations(certificates.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as opened:

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                if ended.is_set():
                    connection.close()
                    return
                encrypted = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                opened.enter_context(encrypted)
                encrypted.settimeout(LIMIT_S)
                with contextlib.suppress(OSError):
                    encrypted.do_handshake()

        ended = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join(LIMIT_S)
