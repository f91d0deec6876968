"""The quota that limits a client, of all that are set: Apache Kafka's order of precedence (KIP-55).

A quota is shared by all connections of the same user and client id where it names a client id or the default of client
ids, by all of the user where it names users alone, and by all of the client id where it names client ids alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gregor.replication.entities.quotas import DEFAULT, QuotaEntity


class Shared(NamedTuple):
    """The connections that share one measured rate; an empty name stands for any."""

    user: str
    client_id: str


class Applicable(NamedTuple):
    """The limit of a client, and the connections that reach it together."""

    shared: Shared
    limit: float


def applicable(limits: Mapping[QuotaEntity, float], user: str, client_id: str) -> Applicable | None:
    """Return the quota of one kind that limits a client; None if there is none. Clients without a client id have no
    quota that names client ids, or their default."""
    for entity, shared in candidates(user, client_id):
        limit = limits.get(entity)
        if limit is not None:
            return Applicable(shared, limit)
    return None


def candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, Shared]]:
    """Yield the entities whose quotas may limit a client, the most specific one first."""
    both, whole_user = Shared(user, client_id), Shared(user, "")
    if user:
        if client_id:
            yield QuotaEntity(user, client_id), both
            yield QuotaEntity(user, DEFAULT), both
        yield QuotaEntity(user), whole_user
        if client_id:
            yield QuotaEntity(DEFAULT, client_id), both
            yield QuotaEntity(DEFAULT, DEFAULT), both
        yield QuotaEntity(DEFAULT), whole_user
    if client_id:
        yield QuotaEntity(None, client_id), Shared("", client_id)
        yield QuotaEntity(None, DEFAULT), Shared("", client_id)
