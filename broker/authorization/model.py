"""The authorizer as handlers and guards use it, with the terms of its questions (gregor.protocol.acls)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from gregor.protocol.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from gregor.protocol.principal import Principal

__all__ = ["CLUSTER_NAME", "Authorizer", "ClientRequest", "Operation", "ResourceType"]


class Client(Protocol):
    """The connection of a request: its principal and the address of its host."""

    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...
    @property
    def listener(self) -> str: ...


class ClientRequest(Protocol):
    """The part of a call (gregor.broker.context.Call) that an authorizer reads."""

    @property
    def connection(self) -> Client: ...
    @property
    def api_key(self) -> int: ...


class Authorizer(Protocol):
    """Decides whether the client of a request may do something. The client is the principal and the host of the
    connection of `call`.

    Allowed operations, and denied ones unless `logs_denial` is false, are written to the audit log. A check whose
    denial only filters names out of a response does not log it.
    """

    def allows(
        self, call: ClientRequest, operation: Operation, resource: ResourceType, name: str, *, logs_denial: bool = True
    ) -> bool:
        """Return whether the operation is allowed on the resource of this name."""
        ...

    def allowed(
        self,
        call: ClientRequest,
        operation: Operation,
        resource: ResourceType,
        names: Iterable[str],
        *,
        logs_denial: bool = True,
    ) -> set[str]:
        """Return those of the names on which the operation is allowed."""
        ...

    def allows_any(self, call: ClientRequest, operation: Operation, resource: ResourceType) -> bool:
        """Return whether the operation is allowed on at least one possible name of this type (Kafka's
        authorizeByResourceType)."""
        ...

    @property
    def generation(self) -> int:
        """A number that grows with each change of the rules: a decision of another generation is void."""
        ...
