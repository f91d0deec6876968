"""The client side of authentication: handshake and tokens as a generator of requests, which any kind of IO can drive.

    log_in = login(mechanism, offered)
    request, version = next(log_in)
    request, version = log_in.send(response)    # and again, until StopIteration, whose value is a Session

`offered` are the versions that the broker sent in its ApiVersions response, which precedes authentication (KIP-35). The
same generator re-authenticates an open connection (KIP-368).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from gregor.protocol.client import UnsupportedVersion, VersionRanges, newest_version
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from gregor.protocol.sasl.mechanism import AuthenticationFailed

if TYPE_CHECKING:
    from gregor.protocol.messages import ApiMessage
    from gregor.protocol.sasl.mechanism import ClientMechanism

_HANDSHAKE_VERSION = 1
"""Version 0 is followed by tokens without Kafka's framing (KIP-152); only brokers before 1.0 have no other one."""
MAX_ROUNDS = 10
"""A server that never ends an exchange is given up; SCRAM needs two rounds."""


REAUTHENTICATE_AT = 0.85
"""The part of a session's lifetime after which a client authenticates again (Kafka's SaslClientAuthenticator: 0.85 to
0.95)."""


class Session(NamedTuple):
    """An authenticated connection. After `lifetime_ms` the broker ends it unless the client authenticates again; 0: it
    has no end (KIP-368)."""

    lifetime_ms: int


def login(mechanism: ClientMechanism, offered: VersionRanges) -> Generator[tuple[ApiMessage, int], Any, Session]:
    """Yield each request with its version; receive its response. Raises AuthenticationFailed, UnsupportedVersion."""
    request = SaslHandshakeRequest(mechanism=mechanism.name)
    if newest_version(offered, request) < _HANDSHAKE_VERSION:
        raise UnsupportedVersion(request.API_KEY, offered.get(request.API_KEY), (_HANDSHAKE_VERSION,) * 2)
    answer = yield request, _HANDSHAKE_VERSION
    if answer.error_code:
        enabled = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            f"the broker has no SASL mechanism {mechanism.name} ({error_name(answer.error_code)}) but: {enabled}"
        )
    token: bytes | None = mechanism.first()
    version = newest_version(offered, SaslAuthenticateRequest)
    lifetime_ms = 0
    for _ in range(MAX_ROUNDS):
        if token is None:
            return Session(lifetime_ms)
        answer = yield SaslAuthenticateRequest(auth_bytes=token), version
        if answer.error_code:
            text = answer.error_message or error_name(answer.error_code)
            raise AuthenticationFailed(f"the broker refuses the client with SASL/{mechanism.name}: {text}")
        lifetime_ms = answer.session_lifetime_ms
        token = mechanism.respond(answer.auth_bytes)
    raise AuthenticationFailed(f"the exchange of SASL/{mechanism.name} has no end after {MAX_ROUNDS} rounds")


def error_name(code: int) -> str:
    """Return the name of an error code, or the number of an unknown one."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
