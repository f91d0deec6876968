"""The built-in authorizer: decides by access rules, super users and one default, and remembers its decisions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from gregor.broker.authorization.audit import ANY_NAME, audit_line, audit_log
from gregor.broker.authorization.rules import SUPER_USER, AuthorizerClass, Client, Decision, RuleSet, java_host

if TYPE_CHECKING:
    from gregor.broker.authorization.model import ClientRequest
    from gregor.protocol.acls import Operation, Pattern, ResourceType, Rule
    from gregor.protocol.principal import Principal

MAX_DECISIONS = 20_000
"""Decisions that are remembered; with one more, all are forgotten, as clients choose the names."""

_Key = tuple["Principal", str, "Operation", "ResourceType", str | None]


class BuiltInAuthorizer:
    """Both of Apache Kafka's authorizers: `authorizer` selects one of them, where they differ."""

    def __init__(
        self, authorizer: AuthorizerClass, super_users: Collection[str] = (), *, allow_everyone: bool = False
    ) -> None:
        self._class = authorizer
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._rules = RuleSet()
        self._decisions: dict[_Key, Decision] = {}
        self._generation = 0

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def remembered_decisions(self) -> int:
        return len(self._decisions)

    def replace_rules(self, pattern: Pattern, rules: Collection[Rule]) -> None:
        """Let a pattern have these rules and no others; all decisions are made anew."""
        self._rules.replace(pattern, rules)
        self._decisions.clear()
        self._generation += 1

    # -- decisions -------------------------------------------------------------------------------------------------

    def allows(
        self, call: ClientRequest, operation: Operation, resource: ResourceType, name: str, *, logs_denial: bool = True
    ) -> bool:
        connection = call.connection
        key = (connection.principal, connection.host, operation, resource, name)
        decision = self._decisions.get(key) or self._decide(key)
        if decision.allowed:
            if audit_log.isEnabledFor(logging.DEBUG):
                audit_log.debug("%s", audit_line(call, operation, resource, name, decision))
            return True
        if logs_denial:
            audit_log.info("%s", audit_line(call, operation, resource, name, decision))
        return False

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
        connection = call.connection
        key = (connection.principal, connection.host, operation, resource, None)
        decision = self._decisions.get(key) or self._decide(key)
        level = logging.DEBUG if decision.allowed else logging.INFO
        if audit_log.isEnabledFor(level):
            audit_log.log(level, "%s", audit_line(call, operation, resource, ANY_NAME, decision))
        return decision.allowed

    def _decide(self, key: _Key) -> Decision:
        principal, host, operation, resource, name = key
        client = Client(str(principal), java_host(host))
        if client.principal in self._super_users:
            decision = SUPER_USER
        elif name is None:
            decision = self._rules.decide_any(
                client, operation, resource, allow_everyone=self._allow_everyone, authorizer=self._class
            )
        else:
            decision = self._rules.decide(client, operation, resource, name, allow_everyone=self._allow_everyone)
        if len(self._decisions) >= MAX_DECISIONS:
            self._decisions.clear()
        self._decisions[key] = decision
        return decision
