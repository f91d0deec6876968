"""A client's connection to a TLS listener, from the end of its handshake on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from gregor.broker.net.connection import Connection
from gregor.broker.net.tls.outbound import EncryptedOutbound
from gregor.config.security.der import DerError
from gregor.config.security.names import certificate_names
from gregor.config.security.principal_rules import NoMatchingRule
from gregor.protocol.principal import USER, Principal

if TYPE_CHECKING:
    from collections.abc import Callable

    from gregor.broker.net.context import ConnectionContext
    from gregor.broker.net.outbound import Outbound
    from gregor.config.security.principal_rules import PrincipalRules


class TlsConnection(Connection):
    """Its transport encrypts; the rest is as without TLS."""

    __slots__ = ("_on_handshake_end", "_rules")

    _outbound: EncryptedOutbound

    OUTBOUND: ClassVar[type[Outbound]] = EncryptedOutbound

    def __init__(
        self,
        broker: ConnectionContext,
        listener: str,
        rules: PrincipalRules | None,
        on_handshake_end: Callable[[], None],
    ) -> None:
        """`rules` is None where SASL determines the principal; `on_handshake_end` ends the count of the handshake."""
        super().__init__(broker, listener)
        self._rules = rules
        self._on_handshake_end = on_handshake_end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._on_handshake_end()
        super().connection_made(transport)
        if self.closed:
            return
        self._outbound.begin()
        if self._rules is None:
            return
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if certificate is not None:
            try:
                self.principal = Principal(USER, self._rules.name_of(certificate_names(certificate).subject_text))
            except (DerError, NoMatchingRule) as error:
                self.fail(f"the client cannot be authenticated: {error}")

    def _held_ms(self) -> int:
        return 0  # it was counted before its handshake

    def _delay_s(self, now_s: float) -> float | None:
        return 0.0  # it was delayed before its handshake

    def eof_received(self) -> bool:
        return False  # the transport answers the end of TLS and closes; `connection_lost` follows
