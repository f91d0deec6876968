"""The two sides of a SASL exchange (RFC 4422), as brokers and clients use them.

Mechanisms receive and return tokens; handshake, framing and errors on the wire are those of KIP-43, KIP-152 and KIP-368
(gregor.protocol.sasl.login for clients, gregor.broker.security for the broker).
"""

from __future__ import annotations

from typing import Protocol

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"


class AuthenticationFailed(Exception):
    """An exchange has failed and cannot continue.

    `for_peer` is the text that the other side may read; None stands for the general one, which reveals neither whether
    the user exists nor what was wrong. `str()` is for this side's log. Neither contains a secret.
    """

    def __init__(self, message: str, *, for_peer: str | None = None) -> None:
        super().__init__(message)
        self.for_peer = for_peer


class ServerMechanism(Protocol):
    """The server side of one exchange."""

    done: bool
    """Whether the client is authenticated; set by the last `respond`."""

    principal_name: str
    """The name of the authenticated client."""

    expires_at_ms: int | None
    """The end of the credential's life, in the clock of the caller; None if it has no end."""

    token_authenticated: bool
    """Whether the credential is a delegation token, with which no further tokens can be made (KIP-48)."""

    def respond(self, token: bytes) -> bytes | None:
        """Return the response to a token of the client; None if the exchange ends without one, so that no token is sent
        where tokens have no framing of Kafka's (handshake version 0). Raises AuthenticationFailed."""


class ClientMechanism(Protocol):
    """The client side of one exchange."""

    @property
    def name(self) -> str:
        """The name of the mechanism, as in a handshake."""

    def first(self) -> bytes:
        """Return the first token. A new exchange begins, so a mechanism serves each re-authentication."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the token that answers a challenge; None at the end of the exchange. Raises AuthenticationFailed."""
