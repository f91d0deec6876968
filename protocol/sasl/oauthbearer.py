"""The mechanism OAUTHBEARER (RFC 7628): a bearer token in one message, in the form of Kafka's OAuthBearerSaslServer.

    n,[a=<authorization id>],\\x01auth=Bearer <token>[\\x01<extension>=<value>]*\\x01\\x01

A refused token is answered by a JSON text; the client sends one byte 1 in return, and the exchange fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from gregor.protocol.sasl.mechanism import OAUTHBEARER, AuthenticationFailed

TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
"""The key of the address at which clients fetch tokens."""
_SASLNAME = r"(?:[^\x00\x80-\xff=,]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=({_SASLNAME}))?,((?:\x01[A-Za-z]+=[\x21-\x7e \t\r\n]+)*)\x01\x01", re.DOTALL)
_BEARER = re.compile(r"(?i:bearer) ([-A-Za-z0-9._~+/]+=*)")
_END_OF_FAILURE = b"\x01"


class BearerToken(NamedTuple):
    """A token that is valid now."""

    principal_name: str
    expires_at_ms: int
    scopes: frozenset[str] = frozenset()


class TokenRefused(Exception):
    """A token is not valid. `status` is the error of RFC 6750 that the client is sent; the message, without a part of
    the token, is for this side's log."""

    def __init__(self, message: str, status: str = "invalid_token", scope: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.scope = scope


Validate = Callable[[str], BearerToken]
"""Raises TokenRefused."""


class OAuthBearerServer:
    """The server side of OAUTHBEARER."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._failure: tuple[str, str] | None = None
        self.done = False
        self.principal_name = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def respond(self, token: bytes) -> bytes:
        if self._failure is not None:
            reason, answer = self._failure
            raise AuthenticationFailed(reason, for_peer=answer if token == _END_OF_FAILURE else None)
        match = _FIRST.fullmatch(token.decode("latin-1"))
        if match is None:
            raise AuthenticationFailed("the message of OAUTHBEARER is malformed")
        pairs = dict(pair.partition("=")[::2] for pair in match[2].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.pop("auth", ""))
        if bearer is None:
            raise AuthenticationFailed("the message of OAUTHBEARER has no bearer token")
        try:
            found = self._validate(bearer[1])
        except TokenRefused as refused:
            error = {"status": refused.status} | ({"scope": refused.scope} if refused.scope else {})
            answer = json.dumps(error, separators=(",", ":"))
            self._failure = f"the token is refused: {refused}", answer
            return answer.encode()
        if match[1] is not None and match[1].replace("=2C", ",").replace("=3D", "=") != found.principal_name:
            raise AuthenticationFailed(
                f"the token of {found.principal_name!r} comes with a request for another identity",
                for_peer="Authentication failed: Client requested an authorization id that is different from the"
                " token's principal name",
            )
        self.done, self.principal_name, self.expires_at_ms = True, found.principal_name, found.expires_at_ms
        return b""


class OAuthBearerClient:
    """The client side of OAUTHBEARER. `token` returns the present token at each authentication."""

    name = OAUTHBEARER

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token
        self._refusal: str | None = None

    def first(self) -> bytes:
        self._refusal = None
        return f"n,,\x01auth=Bearer {self._token()}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        if self._refusal is not None:
            raise AuthenticationFailed(f"the server refuses the token: {self._refusal}")
        if not challenge:
            return None
        self._refusal = challenge.decode("utf-8", "replace")
        return _END_OF_FAILURE
