"""The parts of a broker by which clients authenticate, and that hold what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.broker.security.authentication import Authentication
    from gregor.replication.entities.acls import AclStore
    from gregor.replication.entities.credentials import ScramCredentials
    from gregor.replication.entities.tokens import DelegationTokens


@dataclass(slots=True, frozen=True)
class SecurityParts:
    """Made by gregor.broker.wiring. The authorizer is not among them: requests of the hot path need it."""

    authentication: Authentication
    credentials: ScramCredentials
    tokens: DelegationTokens
    acls: AclStore | None
    """The access rules; None without an authorizer."""
