"""Access control lists: the codes of the wire protocol, and one rule.

The numbers are those of Kafka's AclOperation, AclPermissionType, ResourceType and PatternType; their names on command
lines and in nodes are Kafka's too.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

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
