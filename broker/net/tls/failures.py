"""Why handshakes of clients fail, in words: the cause and the remedy."""

from __future__ import annotations

import asyncio
import ssl

# The last words of OpenSSL's reasons. The alerts are what a client sends that refuses this broker.
_REMEDIES = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client presented no certificate, and ssl.client.auth is required",
    "NO_SHARED_CIPHER": "client and listener have no cipher suite in common (ssl.cipher.suites)",
    "UNSUPPORTED_PROTOCOL": "the client offers only TLS versions that ssl.enabled.protocols does not name",
    "VERSION_TOO_LOW": "the client offers only TLS versions that ssl.enabled.protocols does not name",
    "WRONG_VERSION_NUMBER": "the client sent something else than TLS",
    "HTTP_REQUEST": "the client sent an HTTP request",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this broker's certificate; check its trust store",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refused this broker's certificate; check its trust store and the "
    "name that it connects to",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refused this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this broker's certificate has expired for the client",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client serves none of the versions of ssl.enabled.protocols",
    "UNEXPECTED_EOF_WHILE_READING": "the client closed the connection",
}


def reason_of(error: BaseException) -> str:
    """Return the cause of a failed handshake, and the remedy where there is one."""
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        verification: str = getattr(error, "verify_message", "")
        if verification:
            return f"the client's certificate is refused: {verification} (ssl.truststore.location)"
        words = reason.replace("_", " ").lower()
        remedy = _REMEDIES.get(reason)
        return f"{remedy} ({words})" if remedy else words
    if isinstance(error, asyncio.TimeoutError):
        return "the client did not complete it in time"
    text = getattr(error, "strerror", None) or str(error)
    return str(text) or "the client closed the connection"


def plain_client_text(head: bytes) -> str:
    """Return the line for a client that begins with other bytes than those of a TLS handshake."""
    shown = f"it begins with the bytes {head.hex()} instead of a TLS handshake"
    if head[:1] == b"\0":
        return f"{shown}; the client may have security.protocol=PLAINTEXT, which must be SSL or SASL_SSL here"
    return shown
