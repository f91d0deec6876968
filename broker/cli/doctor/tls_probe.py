"""Whether a server speaks TLS, found without a certificate or a secret."""

from __future__ import annotations

import socket
import ssl

from gregor.broker.cli.client import CONNECT_TIMEOUT_S


def speaks_tls(host: str, port: int) -> bool:
    """Return whether the peer answers the start of a TLS handshake with one, or with an alert."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # no data is sent, so the identity of the peer does not matter
    try:
        with socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S) as opened, context.wrap_socket(opened):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
