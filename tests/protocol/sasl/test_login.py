"""protocol.sasl.login: the requests of a client that authenticates."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.config.security.jaas import parse_jaas
from gregor.protocol.client import UnsupportedVersion
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from gregor.protocol.sasl.clients import client_mechanism
from gregor.protocol.sasl.login import MAX_ROUNDS, Session, login
from gregor.protocol.sasl.mechanism import PLAIN, AuthenticationFailed
from gregor.protocol.sasl.plain import PasswordTable, PlainClient, PlainServer

OFFERED = {17: (0, 1), 36: (0, 2)}


def finished(steps: Any, response: Any) -> Session:
    with pytest.raises(StopIteration) as ended:
        steps.send(response)
    session: Session = ended.value.value
    return session


def test_handshake_and_token() -> None:
    server = PlainServer(PasswordTable({"a": "b"}))
    steps = login(PlainClient("a", "b"), OFFERED)
    assert next(steps) == (SaslHandshakeRequest(mechanism=PLAIN), 1)
    request, version = steps.send(SaslHandshakeResponse(mechanisms=[PLAIN]))
    assert isinstance(request, SaslAuthenticateRequest)
    assert version == 2
    answer = SaslAuthenticateResponse(auth_bytes=server.respond(request.auth_bytes), session_lifetime_ms=5)
    assert finished(steps, answer) == Session(5)
    assert server.done


def test_mechanism_that_the_broker_lacks() -> None:
    steps = login(PlainClient("a", "b"), OFFERED)
    next(steps)
    with pytest.raises(AuthenticationFailed, match="no SASL mechanism PLAIN .UNSUPPORTED_SASL_MECHANISM. but: X"):
        steps.send(SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["X"]))


def test_refused_client_reads_the_text_of_the_broker() -> None:
    steps = login(PlainClient("a", "b"), OFFERED)
    next(steps)
    steps.send(SaslHandshakeResponse())
    with pytest.raises(AuthenticationFailed, match="SASL/PLAIN: no such user"):
        steps.send(SaslAuthenticateResponse(error_code=58, error_message="no such user"))


@pytest.mark.parametrize("offered", [{}, {17: (0, 0), 36: (0, 2)}])
def test_broker_that_is_too_old(offered: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(UnsupportedVersion):
        next(login(PlainClient("a", "b"), offered))


def test_exchange_without_an_end_is_given_up() -> None:
    class Endless(PlainClient):
        def respond(self, challenge: bytes) -> Any:
            return b"x"

    steps = login(Endless("a", "b"), OFFERED)
    next(steps)
    steps.send(SaslHandshakeResponse())
    with pytest.raises(AuthenticationFailed, match="no end"):
        for _ in range(MAX_ROUNDS):
            steps.send(SaslAuthenticateResponse())


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("GSSAPI", "x.Krb5LoginModule required;", "needs useKeyTab=true with keyTab and principal, or"),
        ("OTHER", "x.Y required;", "unknown"),
        ("PLAIN", "x.PlainLoginModule required username=a;", "username and password"),
        ("SCRAM-SHA-256", "x.ScramLoginModule required password=a;", "username and password"),
        ("OAUTHBEARER", "x.OAuthBearerLoginModule required;", "needs a token"),
    ],
)
def test_login_modules_that_cannot_be_used(name: str, text: str, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        client_mechanism(name, parse_jaas(text)[0], now_s=lambda: 0)
    with pytest.raises(AuthenticationFailed):
        client_mechanism(name, None)
