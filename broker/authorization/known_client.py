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

    __slots__ = ("_client_id", "_meters", "_rights")

    def __init__(self) -> None:
        self._rights = NO_RIGHTS
        self._client_id: str | None = None
        self._meters = NO_METERS

    def rights_under(self, authorizer: Authorizer) -> ReadRights:
        """Return what the present rules are known to allow; nothing that was allowed by earlier ones."""
        if self._rights.generation != authorizer.generation:
            self._rights = ReadRights(authorizer.generation)
        return self._rights

    def meters_of(self, quotas: Quotas, user: str, client_id: str | None) -> ClientMeters:
        """Return the rates that the present quotas limit, of requests with this client id."""
        if self._meters.generation != quotas.generation or self._client_id != client_id:
            self._client_id, self._meters = client_id, quotas.meters_of(user, client_id)
        return self._meters
