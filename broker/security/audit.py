"""Lines about authentications, in the audit log that the authorizer has too."""

from __future__ import annotations

import logging
from typing import Protocol

from gregor.protocol.principal import Principal

_audit = logging.getLogger("gregor.authorizer")


class _Connection(Protocol):
    @property
    def peer(self) -> str: ...
    @property
    def listener(self) -> str: ...


def log_failure(connection: _Connection, mechanism: str, reason: str) -> None:
    """`reason` contains no secret."""
    _audit.info(
        "authentication of %s failed on %s (SASL/%s): %s",
        connection.peer,
        connection.listener,
        mechanism or "?",
        reason,
    )


def log_success(connection: _Connection, mechanism: str, principal: Principal) -> None:
    _audit.debug("%s authenticated as %s on %s (SASL/%s)", connection.peer, principal, connection.listener, mechanism)
