"""The authentication of one connection of a SASL listener, and its renewal (KIP-43, KIP-152, KIP-368).

    state          | requests that are served                    | next state
    HANDSHAKE      | ApiVersions, SaslHandshake                  | TOKENS
    TOKENS         | SaslAuthenticate; raw tokens after version 0 | AUTHENTICATED, or the end
    AUTHENTICATED  | all; SaslHandshake where the session has an end | TOKENS
    EXPIRED        | ApiVersions, SaslHandshake                  | TOKENS

Any other request ends the connection, as in Kafka's SaslServerAuthenticator. The table of handlers of the connection is
the small one except in AUTHENTICATED, so requests of authenticated clients pass nothing of this. A refused client is
answered after connection.failed.authentication.delay.ms; until then its connection serves nothing. Connections before
their first authentication are limited in number; one that renews its authentication does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from gregor.broker.security.audit import log_failure, log_success
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from gregor.protocol.principal import USER, Principal
from gregor.protocol.sasl.mechanism import AuthenticationFailed

if TYPE_CHECKING:
    from gregor.broker.security.listener import SaslListener
    from gregor.broker.security.strangers import Strangers
    from gregor.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
    from gregor.protocol.sasl.mechanism import ServerMechanism

EXCHANGE_LIMIT_S = 30.0
"""A client that has not authenticated after this time is disconnected."""
_FRAMED_FROM = 1
"""From this version of SaslHandshake on, tokens come in SaslAuthenticate requests."""


class State(Enum):
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    AUTHENTICATED = "authenticated"
    EXPIRED = "expired"
    FAILED = "failed"


class SecuredConnection(Protocol):
    """The connection of a session."""

    @property
    def peer(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def listener(self) -> str: ...
    def restrict(self, max_request_bytes: int) -> None:
        """Serve only what precedes authentication."""

    def admit(self, principal: Principal) -> None:
        """Serve all requests, as those of this principal."""

    def expect_tokens(self, max_token_bytes: int) -> None:
        """Receive frames that are tokens, and no requests, until `admit`."""

    def send_token(self, token: bytes) -> None:
        """Send a frame that is a token."""

    def hold(self) -> None: ...
    def end_hold(self) -> None: ...
    def finish(self) -> None: ...
    def fail(self, reason: str) -> None: ...


class SaslSession:
    """The state of one connection's authentication."""

    __slots__ = (
        "_clock_ms",
        "_connection",
        "_held",
        "_listener",
        "_loop",
        "_mechanism",
        "_principal",
        "_raw",
        "_server",
        "_strangers",
        "_timer",
        "expires",
        "state",
        "token_authenticated",
    )

    def __init__(
        self,
        connection: SecuredConnection,
        listener: SaslListener,
        loop: asyncio.AbstractEventLoop,
        clock_ms: Callable[[], int],
        strangers: Strangers[SecuredConnection],
    ) -> None:
        """`strangers` has the connections of the listener that have not authenticated yet."""
        self._connection = connection
        self._listener = listener
        self._loop = loop
        self._clock_ms = clock_ms
        self._server: ServerMechanism | None = None
        self._mechanism = ""
        self._principal: Principal | None = None
        self._raw = False
        self._held = False
        self.state = State.HANDSHAKE
        self.expires = False
        """Whether the session has an end, before which the client may authenticate again."""
        self.token_authenticated = False
        """Whether the client authenticated with a delegation token."""
        connection.restrict(listener.settings.max_request_bytes)
        self._timer = loop.call_later(EXCHANGE_LIMIT_S, self._give_up)
        self._strangers = strangers
        strangers.add(connection)

    def close(self) -> None:
        """End the session with its connection."""
        self._timer.cancel()
        self._strangers.discard(self._connection)
        if self._held:
            self._held = False
            self._connection.end_hold()

    # ---- requests -------------------------------------------------------------------------------------------------

    def handshake(self, request: SaslHandshakeRequest, version: int) -> Any:
        """Return the response to SaslHandshake, or the Deferred of a refusal."""
        settings = self._listener.settings
        mechanisms = list(settings.mechanisms)
        if self.state is State.AUTHENTICATED and not self.expires:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        if self.state in (State.TOKENS, State.FAILED):
            return self._refuse(
                SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE), "a second handshake began an exchange"
            )
        if request.mechanism not in mechanisms:
            response = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
            return self._refuse(
                response,
                f"the mechanism {request.mechanism[:40]!r} is not enabled, only {', '.join(mechanisms)} "
                "(sasl.enabled.mechanisms)",
            )
        if self._principal is not None:
            self._connection.restrict(settings.max_request_bytes)
            if request.mechanism != self._mechanism:
                response = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
                return self._refuse(
                    response, f"re-authentication with {request.mechanism} of a session of {self._mechanism}"
                )
        self._server, self._mechanism = self._listener.server(request.mechanism), request.mechanism
        self.state = State.TOKENS
        self._restart_timer(EXCHANGE_LIMIT_S, self._give_up)
        if version < _FRAMED_FROM:
            self._raw = True
            self._connection.expect_tokens(settings.max_request_bytes)
        return SaslHandshakeResponse(mechanisms=mechanisms)

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> Any:
        """Return the response to SaslAuthenticate, or the Deferred of a refusal."""
        if self.state is State.AUTHENTICATED:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        if self.state is not State.TOKENS:
            self._connection.fail("SaslAuthenticate came without a SaslHandshake before it")
            return None
        try:
            token, lifetime_ms = self._evaluate(bytes(request.auth_bytes))
        except AuthenticationFailed as failed:
            text = failed.for_peer or self._general_text()
            response = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
            return self._refuse(response, str(failed))
        return SaslAuthenticateResponse(auth_bytes=token or b"", session_lifetime_ms=lifetime_ms)

    def token(self, token: bytes) -> None:
        """Answer a raw token of a client of handshake version 0."""
        if self.state is not State.TOKENS:
            return
        try:
            answer, _ = self._evaluate(token)
        except AuthenticationFailed as failed:
            # Without Kafka's framing there is no error: the connection just ends (KIP-152).
            self._refuse(None, str(failed))
            return
        if answer is not None:
            self._connection.send_token(answer)

    def _evaluate(self, token: bytes) -> tuple[bytes | None, int]:
        """Return the response to a token, and the session's lifetime in ms once the client is authenticated."""
        server = self._server
        assert server is not None
        answer = server.respond(token)
        if not server.done:
            return answer, 0
        principal = Principal(USER, server.principal_name)
        if self._principal not in (None, principal):
            raise AuthenticationFailed(
                f"re-authentication as {principal} of a session of {self._principal}",
                for_peer="Cannot change principals during re-authentication",
            )
        self._principal, self._server = principal, None
        self.token_authenticated = server.token_authenticated
        return answer, self._succeeded(principal, server.expires_at_ms)

    def _succeeded(self, principal: Principal, expires_at_ms: int | None) -> int:
        lifetimes = [self._listener.settings.max_reauth_ms[self._mechanism]]
        if expires_at_ms is not None:
            lifetimes.append(max(1, expires_at_ms - self._clock_ms()))
        lifetime_ms = min((one for one in lifetimes if one > 0), default=0)
        self.state, self.expires = State.AUTHENTICATED, lifetime_ms > 0
        if lifetime_ms:
            self._restart_timer(lifetime_ms / 1000, self._expire)
        else:
            self._timer.cancel()
        self._strangers.discard(self._connection)
        log_success(self._connection, self._mechanism, principal)
        self._connection.admit(principal)
        return lifetime_ms

    # ---- ends -----------------------------------------------------------------------------------------------------

    def _refuse(self, response: Any, reason: str) -> Deferred[Any]:
        """End the exchange: complete the response after the delay of failures, then close the connection."""
        self.state, self._server = State.FAILED, None
        log_failure(self._connection, self._mechanism, reason)
        answer: Deferred[Any] = Deferred()
        if response is None:
            self._held = True
            self._connection.hold()
        self._restart_timer(self._listener.settings.failure_delay_ms / 1000, self._end, answer, response)
        return answer

    def _end(self, answer: Deferred[Any], response: Any) -> None:
        if response is not None:
            answer.complete(response)
        self._connection.finish()

    def _general_text(self) -> str:
        kind = "authentication" if self._principal is None else "re-authentication"
        return f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _expire(self) -> None:
        self.state = State.EXPIRED
        self._connection.restrict(self._listener.settings.max_request_bytes)

    def _give_up(self) -> None:
        self._connection.fail(f"the client has not authenticated within {EXCHANGE_LIMIT_S:g} s")

    def _restart_timer(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, callback, *arguments)


def refusal_of(state: State, api_name: str) -> str:
    """Return why a request that is not served in this state ends its connection."""
    if state is State.EXPIRED:
        return f"{api_name} came after the end of the session: the client has not authenticated again in time (KIP-368)"
    if state is State.TOKENS:
        return f"{api_name} came in the middle of a SASL exchange"
    return f"{api_name} came before authentication; its security.protocol may not be that of the listener"
