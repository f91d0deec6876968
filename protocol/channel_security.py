"""The security of a client's connections to brokers: the security protocol, the TLS context, and the SASL mechanism.

A broker has one for its connections to the other brokers, a command or a Spark job one for the cluster. It is made once
from the settings, and serves all connections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gregor.protocol.sasl.mechanism import ClientMechanism

PLAINTEXT = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class ChannelSecurity:
    """The default is a connection in clear text without authentication."""

    security_protocol: str = PLAINTEXT
    tls_context: Callable[[], Any] | None = field(default=None, repr=False)
    """Returns the ssl.SSLContext of a new connection, whose certificates may have been exchanged. None without TLS."""
    new_mechanism: Callable[[str], ClientMechanism] | None = field(default=None, repr=False)
    """Makes the mechanism of one connection to a host, which serves its re-authentications too. None without SASL."""


PLAINTEXT_CHANNEL = ChannelSecurity()
