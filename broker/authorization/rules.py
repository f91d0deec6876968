"""The decisions of Kafka's two authorizers, as functions of the rules, without IO and without a cache.

- A denial prevails over any permission. Operations that no rule allows are denied.
- READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS, where they are allowed; a
  denial implies nothing.
- Rules of a pattern apply to its name, to all names with its prefix, or with the literal name "*" to every name.
- `allow.everyone.if.no.acl.found` allows everything on a resource that no rule applies to, whatever the principal,
  operation and host of the rule.

Sources: AclAuthorizer of 3.9, StandardAuthorizerData and Authorizer.authorizeByResourceType of 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from enum import StrEnum
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple

from gregor.config.tables.authorizer_keys import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from gregor.protocol.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    text_of,
)

_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
_ANY_NAME = "hardcode"
"""The name that StandardAuthorizer checks first when any name will do: it stands for a resource without rules."""


class AuthorizerClass(StrEnum):
    """The values of authorizer.class.name. They decide alike about a resource, and differently about whether some
    resource of a type is allowed."""

    ACL = ACL_AUTHORIZER
    STANDARD = STANDARD_AUTHORIZER


class Client(NamedTuple):
    principal: str
    host: str
    """As Java writes the address, see `java_host`."""


class Decision(NamedTuple):
    allowed: bool
    reason: str
    """SuperUser, DefaultAllow, DefaultDeny or MatchingAcl(...), as in the audit log of StandardAuthorizer."""
    pattern: Pattern | None = None
    rule: Rule | None = None


SUPER_USER = Decision(True, "SuperUser")
DEFAULT_ALLOW = Decision(True, "DefaultAllow")
DEFAULT_DENY = Decision(False, "DefaultDeny")


def java_host(host: str) -> str:
    """Return an address as Java's InetAddress.getHostAddress writes it, which is the form that rules have: eight
    groups without leading zeros for IPv6, and IPv4 for an IPv6 address that maps it."""
    if ":" not in host:
        return host
    text, percent, scope = host.partition("%")
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":")) + percent + scope


class RuleSet:
    """The rules by their patterns, arranged for one access for a name, and one for each length of prefix."""

    def __init__(self) -> None:
        self._literal: dict[tuple[ResourceType, str], tuple[Rule, ...]] = {}
        self._prefixed: dict[tuple[ResourceType, str], tuple[Rule, ...]] = {}
        self._prefix_counts: dict[ResourceType, Counter[int]] = {}
        """Of the prefixes of each length."""
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}
        """The same lengths in their order."""

    def replace(self, pattern: Pattern, rules: Collection[Rule]) -> None:
        """Let a pattern have these rules and no others."""
        resource, name, pattern_type = pattern
        kept = self._literal if pattern_type is PatternType.LITERAL else self._prefixed
        had_rules = (resource, name) in kept
        if rules:
            kept[resource, name] = tuple(rules)
        else:
            kept.pop((resource, name), None)
        if pattern_type is PatternType.PREFIXED and had_rules != bool(rules):
            self._count_prefix(resource, len(name), -1 if had_rules else 1)

    def _count_prefix(self, resource: ResourceType, length: int, change: int) -> None:
        """Count one prefix more or less of this length, without a walk over all of them."""
        counts = self._prefix_counts.setdefault(resource, Counter())
        counts[length] += change
        if counts[length] == max(change, 0):  # the first one of this length, or the last one
            if not counts[length]:
                del counts[length]
            self._prefix_lengths[resource] = tuple(sorted(counts))

    def matching(self, resource: ResourceType, name: str) -> Iterator[tuple[Pattern, Rule]]:
        """Return the rules that apply to a resource."""
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            for rule in self._literal.get((resource, literal), ()):
                yield Pattern(resource, literal), rule
        for length in self._prefix_lengths.get(resource, ()):
            if length > len(name):
                return
            for rule in self._prefixed.get((resource, name[:length]), ()):
                yield Pattern(resource, name[:length], PatternType.PREFIXED), rule

    def decide(
        self, client: Client, operation: Operation, resource: ResourceType, name: str, *, allow_everyone: bool
    ) -> Decision:
        """Decide about an operation of a client that is no super user."""
        implied_by = _IMPLIED_BY.get(operation, frozenset({operation}))
        decision = DEFAULT_ALLOW if allow_everyone else DEFAULT_DENY
        allowing: tuple[Pattern, Rule] | None = None
        for pattern, rule in self.matching(resource, name):
            decision = DEFAULT_DENY
            if not _concerns(rule, client):
                continue
            if rule.permission is Permission.DENY:
                if rule.operation in (Operation.ALL, operation):
                    return _decided(False, pattern, rule)
            elif allowing is None and (rule.operation is Operation.ALL or rule.operation in implied_by):
                allowing = pattern, rule
        return decision if allowing is None else _decided(True, *allowing)

    def decide_any(
        self,
        client: Client,
        operation: Operation,
        resource: ResourceType,
        *,
        allow_everyone: bool,
        authorizer: AuthorizerClass,
    ) -> Decision:
        """Decide whether the operation is allowed on some name of the type (authorizeByResourceType)."""
        if authorizer is AuthorizerClass.STANDARD:
            decision = self.decide(client, operation, resource, _ANY_NAME, allow_everyone=allow_everyone)
            if decision.allowed:
                return decision
        allowed, denied = self._about(client, operation, resource)
        everything = Pattern(resource, WILDCARD)
        if everything in denied:
            return _decided(False, everything, denied[everything])
        if allow_everyone and authorizer is AuthorizerClass.ACL:
            return DEFAULT_ALLOW
        for pattern, rule in allowed.items():
            if pattern == everything or not _is_denied(pattern, denied):
                return _decided(True, pattern, rule)
        return DEFAULT_DENY

    def _about(
        self, client: Client, operation: Operation, resource: ResourceType
    ) -> tuple[dict[Pattern, Rule], dict[Pattern, Rule]]:
        """Return the patterns of a type on which the very operation is allowed, and on which it is denied."""
        allowed: dict[Pattern, Rule] = {}
        denied: dict[Pattern, Rule] = {}
        for pattern_type, kept in ((PatternType.LITERAL, self._literal), (PatternType.PREFIXED, self._prefixed)):
            for (of_type, name), rules in kept.items():
                if of_type is not resource:
                    continue
                for rule in rules:
                    if rule.operation in (Operation.ALL, operation) and _concerns(rule, client):
                        found = denied if rule.permission is Permission.DENY else allowed
                        found[Pattern(resource, name, pattern_type)] = rule
        return allowed, denied


def _concerns(rule: Rule, client: Client) -> bool:
    return rule.principal in (client.principal, WILDCARD_PRINCIPAL) and rule.host in (client.host, WILDCARD)


def _is_denied(pattern: Pattern, denied: dict[Pattern, Rule]) -> bool:
    """Return whether a denial covers every name of the pattern."""
    resource, name, _ = pattern
    return pattern in denied or any(
        Pattern(resource, name[:length], PatternType.PREFIXED) in denied for length in range(1, len(name) + 1)
    )


def _decided(allowed: bool, pattern: Pattern, rule: Rule) -> Decision:
    text = (
        f"MatchingAcl({rule.permission.name} {text_of(rule.operation)} to {rule.principal} from host {rule.host}"
        f" on {text_of(pattern.resource)}:{pattern.pattern_type.name}:{pattern.name})"
    )
    return Decision(allowed, text, pattern, rule)
