"""Access control lists: the codes of the wire protocol, and one rule.

The numbers are those of Kafka's AclOperation, AclPermissionType, ResourceType and PatternType; their names on command
lines and in nodes are Kafka's too.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, TypeVar

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""
WILDCARD = "*"
"""The literal name that stands for every name of its type, and the host that stands for every host."""
WILDCARD_PRINCIPAL = "User:*"


class Operation(IntEnum):
    """Kafka's AclOperation. ANY stands only in filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Kafka's AclPermissionType. ANY stands only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourceType(IntEnum):
    """Kafka's ResourceType. ANY stands only in filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kafka's PatternType. ANY and MATCH stand only in filters: of any pattern, and of each pattern that the name
    matches."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Pattern(NamedTuple):
    """The resources that rules are about: one name, all names with a prefix, or with the literal name "*" all."""

    resource: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class Rule(NamedTuple):
    """Kafka's AccessControlEntry: what it permits or denies to a principal from a host."""

    principal: str
    """`TYPE:name`."""
    permission: Permission
    operation: Operation
    host: str = WILDCARD


class Acl(NamedTuple):
    """Kafka's AclBinding: a rule about the resources of a pattern."""

    pattern: Pattern
    rule: Rule


class AclFilter(NamedTuple):
    """Kafka's AclBindingFilter. None stands for every name, principal or host."""

    resource: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_one_pattern(self) -> bool:
        """Return whether the filter names at most one pattern of each type (ResourcePatternFilter.matchesAtMostOne)."""
        return (
            self.resource is not ResourceType.ANY
            and self.name is not None
            and self.pattern_type is not PatternType.MATCH
        )

    def matches_pattern(self, pattern: Pattern) -> bool:
        """Return whether rules of this pattern may match (ResourcePatternFilter.matches)."""
        if self.resource not in (ResourceType.ANY, pattern.resource):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name == WILDCARD
        return self.name.startswith(pattern.name)

    def matches_rule(self, rule: Rule) -> bool:
        """Return whether the filter matches a rule of a pattern that it matches (AccessControlEntryFilter.matches)."""
        return (
            self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
        )


SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that exist on each type of resource (AclEntry.supportedOperations); ALL is possible on each. Brokers
accept rules of other operations, tools do not."""

CodeT = TypeVar("CodeT", bound=IntEnum)


def text_of(code: IntEnum) -> str:
    """Return the name of a code as nodes and audit logs have it: TransactionalId, AlterConfigs, Allow."""
    return "".join(part.capitalize() for part in code.name.split("_"))


def code_of(codes: type[CodeT], text: str) -> CodeT | None:
    """Return the code of such a name, whatever its case; None for another text. ALTER_CONFIGS is a name, too."""
    wanted = text.replace("_", "").upper()
    return next((code for code in codes if code.name.replace("_", "") == wanted), None)


def principal_problem(principal: str) -> str | None:
    """Return why a text is not a principal, None if it is one (SecurityUtils.parseKafkaPrincipal)."""
    if ":" in principal:
        return None
    return f"{principal!r} is not a principal: it has no colon between type and name, as User:alice has"
