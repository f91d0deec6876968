"""Authorizers for tests of handlers and guards, without rules or storage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gregor.broker.authorization.model import Operation, ResourceType

if TYPE_CHECKING:
    from gregor.broker.authorization.model import ClientRequest

Check = tuple[Operation, ResourceType, str]


class FakeAuthorizer:
    """Allows everything except the denied checks; every check is kept in `checks`."""

    def __init__(self, denied: Iterable[Check] = ()) -> None:
        self.denied = set(denied)
        self.checks: list[Check] = []
        self.generation = 0

    def deny(self, operation: Operation, resource: ResourceType, name: str) -> None:
        self.denied.add((operation, resource, name))
        self.generation += 1

    def allows(
        self, call: ClientRequest, operation: Operation, resource: ResourceType, name: str, *, logs_denial: bool = True
    ) -> bool:
        self.checks.append((operation, resource, name))
        return (operation, resource, name) not in self.denied

    def allowed(
        self,
        call: ClientRequest,
        operation: Operation,
        resource: ResourceType,
        names: Iterable[str],
        *,
        logs_denial: bool = True,
    ) -> set[str]:
        return {name for name in names if self.allows(call, operation, resource, name, logs_denial=logs_denial)}

    def allows_any(self, call: ClientRequest, operation: Operation, resource: ResourceType) -> bool:
        """A denial of the name "*" stands for all names of the type."""
        return self.allows(call, operation, resource, "*")
