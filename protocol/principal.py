"""The identity of a client, as authentication found it: Kafka's KafkaPrincipal."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """`str()` gives `TYPE:name`, as in access control lists and `super.users`; the type is case-sensitive."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""A client of a listener without authentication."""

_REQUESTER_FROM = 3


def requester_in(version: int, requester: Principal) -> Principal:
    """Return the requester of a delegation token as responses of this version name it: none before 3 (KIP-373)."""
    return requester if version >= _REQUESTER_FROM else Principal("", "")
