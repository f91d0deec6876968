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
MAX_REMEMBERED_NAME = 255
"""Characters of a name whose decisions are remembered. No topic has more; a name in a request may have 32 KB."""

_Key = tuple["Principal", str, "Operation", "ResourceType"]
"""Principal, host, operation and type of the resource."""
_Decisions = dict[str | None, Decision]
"""By the name of the resource; None: on any name."""


_NOTHING_KNOWN: _Decisions = {}


class BuiltInAuthorizer:
    """Both of Apache Kafka's authorizers: `authorizer` selects one of them, where they differ."""

    def __init__(
        self, authorizer: AuthorizerClass, super_users: Collection[str] = (), *, allow_everyone: bool = False
    ) -> None:
        self._class = authorizer
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._rules = RuleSet()
        self._decisions: dict[_Key, _Decisions] = {}
        self._decisions_count = 0
        self.generation = 0
        """Grows at each change of the rules. An attribute, as each Produce request compares it."""

    @property
    def remembered_decisions(self) -> int:
        return self._decisions_count

    def replace_rules(self, pattern: Pattern, rules: Collection[Rule]) -> None:
        """Let a pattern have these rules and no others; all decisions are made anew."""
        self._rules.replace(pattern, rules)
        self._forget()
        self.generation += 1

    # -- decisions -------------------------------------------------------------------------------------------------

    def allows(
        self, call: ClientRequest, operation: Operation, resource: ResourceType, name: str, *, logs_denial: bool = True
    ) -> bool:
        connection = call.connection
        key = (connection.principal, connection.host, operation, resource)
        known = self._decisions.get(key)
        decision = (known and known.get(name)) or self._decide(key, name)
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
        connection = call.connection
        known = self._decisions.get((connection.principal, connection.host, operation, resource), _NOTHING_KNOWN)
        if audit_log.isEnabledFor(logging.DEBUG):
            known = _NOTHING_KNOWN  # allowed operations are logged, one by one
        found = set()
        for name in names:
            decision = known.get(name)
            if (decision is not None and decision.allowed) or self.allows(
                call, operation, resource, name, logs_denial=logs_denial
            ):
                found.add(name)
        return found

    def allows_any(self, call: ClientRequest, operation: Operation, resource: ResourceType) -> bool:
        connection = call.connection
        key = (connection.principal, connection.host, operation, resource)
        decision = self._decisions.get(key, _NOTHING_KNOWN).get(None) or self._decide(key, None)
        level = logging.DEBUG if decision.allowed else logging.INFO
        if audit_log.isEnabledFor(level):
            audit_log.log(level, "%s", audit_line(call, operation, resource, ANY_NAME, decision))
        return decision.allowed

    def _decide(self, key: _Key, name: str | None) -> Decision:
        principal, host, operation, resource = key
        client = Client(str(principal), java_host(host))
        if client.principal in self._super_users:
            decision = SUPER_USER
        elif name is None:
            decision = self._rules.decide_any(
                client, operation, resource, allow_everyone=self._allow_everyone, authorizer=self._class
            )
        else:
            decision = self._rules.decide(client, operation, resource, name, allow_everyone=self._allow_everyone)
        if name is not None and len(name) > MAX_REMEMBERED_NAME:
            return decision
        if self._decisions_count >= MAX_DECISIONS:
            self._forget()
        self._decisions_count += 1
        self._decisions.setdefault(key, {})[name] = decision
        return decision

    def _forget(self) -> None:
        self._decisions.clear()
        self._decisions_count = 0
