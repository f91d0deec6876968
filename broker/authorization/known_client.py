"""The rights and rates of the client of a connection, so that a warm request need not find them again.

Each is void as soon as its generation is not the present one: that of the access rules, or that of the quotas. A login
replaces both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.authorization.read_rights import NO_RIGHTS, ReadRights
from gregor.broker.quotas.quotas import NO_METERS, ClientMeters

if TYPE_CHECKING:
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.quotas.quotas import Quotas


class KnownClient:
    """The rights and the rates of one principal on one connection."""

    __slots__ = ("client_id", "meters", "rights")

    def __init__(self) -> None:
        self.rights = NO_RIGHTS
        """Compare the generation with the authorizer's before use."""
        self.client_id: str | None = None
        self.meters = NO_METERS
        """The rates of the requests with this client id; compare the generation with that of the quotas before use."""

    def begin_rights(self, authorizer: Authorizer) -> None:
        """Remember what the present rules allow from now on, and nothing that was allowed before."""
        self.rights = ReadRights(authorizer.generation)

    def find_meters(self, quotas: Quotas, user: str, client_id: str | None) -> ClientMeters:
        """Find and remember the rates that the present quotas limit."""
        self.client_id = client_id
        self.meters = quotas.meters_of(user, client_id)
        return self.meters
