"""The mechanism GSSAPI (RFC 4752): tokens of a security context of Kerberos, then the choice of a security layer.

    client                                    server
    token of the context               ->
                                       <-     token of the context
    an empty token, once it is established ->
                                       <-     wrapped: layers that the server has (1: none), 3 bytes of 0
    wrapped: the chosen layer, 3 bytes of the largest message, the authorization id  ->

Kafka has no security layers: TLS protects a connection. After the last token the server sends none (Java's
GssKrb5Server), so a client of handshake version 0 expects none.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from gregor.protocol.sasl.mechanism import GSSAPI, AuthenticationFailed

_NO_LAYER = 1
"""The bit of authentication alone; 2 stands for integrity, 4 for confidentiality."""
_SIZE_BYTES = 3
_CHOICE_BYTES = 1 + _SIZE_BYTES
_ONLY_AUTHENTICATION = bytes((_NO_LAYER,)) + bytes(_SIZE_BYTES)


class SecurityContext(Protocol):
    """One side of a security context of the Kerberos library. All raise AuthenticationFailed."""

    @property
    def established(self) -> bool: ...
    @property
    def peer(self) -> str:
        """The principal of the other side of an established context, with its realm."""

    def step(self, token: bytes | None) -> bytes:
        """Return the token that answers one of the other side, empty if there is none. None begins the exchange."""

    def wrap(self, message: bytes) -> bytes:
        """Return the message with a proof of its integrity."""

    def unwrap(self, token: bytes) -> bytes:
        """Return the message of a token, whose integrity is proved."""


NewContext = Callable[[], SecurityContext]


class _State(Enum):
    CONTEXT = "context"
    ESTABLISHED = "established"
    LAYER = "layer"
    DONE = "done"


class GssapiServer:
    """The server side of GSSAPI. `name_of` returns the name of the client of a principal; it raises
    AuthenticationFailed for one that has none.

    As with Kafka's SaslServerCallbackHandler the client is the one that its ticket names: the authorization id, which
    differs among client libraries, has no effect.
    """

    def __init__(self, new_context: NewContext, name_of: Callable[[str], str]) -> None:
        self._context = new_context()
        self._name_of = name_of
        self._state = _State.CONTEXT
        self.done = False
        self.principal_name = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def respond(self, token: bytes) -> bytes | None:
        if self._state is _State.CONTEXT:
            return self._accept(token)
        if self._state is _State.ESTABLISHED:
            if token:
                raise AuthenticationFailed("the client sent a token of GSSAPI after the context was established")
            return self._offer()
        if self._state is _State.LAYER:
            self._end(self._context.unwrap(token))
            return None
        raise AuthenticationFailed("the client sent a token of GSSAPI after the end of the exchange")

    def _accept(self, token: bytes) -> bytes:
        if not token:
            raise AuthenticationFailed("the client sent an empty token of GSSAPI instead of its ticket")
        answer = self._context.step(token)
        if not self._context.established:
            if not answer:
                raise AuthenticationFailed("the context of GSSAPI is not established, and there is no token to send")
            return answer
        if not answer:  # a context in which the client does not verify the server
            return self._offer()
        self._state = _State.ESTABLISHED
        return answer

    def _offer(self) -> bytes:
        self._state = _State.LAYER
        return self._context.wrap(_ONLY_AUTHENTICATION)

    def _end(self, choice: bytes) -> None:
        self._state = _State.DONE
        if len(choice) < _CHOICE_BYTES:
            raise AuthenticationFailed(f"the client chose a security layer by {len(choice)} bytes of at least 4")
        if choice[0] != _NO_LAYER:
            raise AuthenticationFailed(
                f"the client chose the security layer {choice[0]}, which is not offered (sasl.qop other than auth); use"
                " SASL_SSL to protect the connection"
            )
        self.principal_name = self._name_of(self._context.peer)
        self.done = True


class GssapiClient:
    """The client side of GSSAPI. `new_context` is called at each authentication, and may wait for a KDC."""

    name = GSSAPI

    def __init__(self, new_context: NewContext) -> None:
        self._new_context = new_context
        self._context: SecurityContext | None = None
        self._chosen = False

    def first(self) -> bytes:
        self._context, self._chosen = self._new_context(), False
        return self._context.step(None)

    def respond(self, challenge: bytes) -> bytes | None:
        context = self._context
        assert context is not None
        if self._chosen:
            if challenge:
                raise AuthenticationFailed("the broker sent a token of GSSAPI after the end of the exchange")
            return None
        if not context.established:
            return context.step(challenge)
        offer = context.unwrap(challenge)
        if len(offer) != _CHOICE_BYTES or not offer[0] & _NO_LAYER:
            raise AuthenticationFailed("the broker offers no GSSAPI without a security layer, and Kafka has none")
        self._chosen = True
        return context.wrap(_ONLY_AUTHENTICATION)
