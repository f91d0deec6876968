"""The nodes of access rules, as AclAuthorizer of Apache Kafka 3.9 writes them (ZkData, AclEntry).

- /kafka-acl/<type>/<name> and, for prefixes, /kafka-acl-extended/prefixed/<type>/<prefix>: the rules of a pattern,
  `{"acls":[{"principal":..,"permissionType":..,"host":..,"operation":..}],"version":1}`, in the order of Java's hash
  maps. A pattern without rules has no node.
- /kafka-acl-changes/acl_changes_<number>: notice of a changed literal pattern, the text `TOPIC:name`.
- /kafka-acl-extended-changes/acl_changes_<number>: notice of another pattern,
  `{"version":1,"resourceType":"TOPIC","name":..,"patternType":"PREFIXED"}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gregor.protocol.acls import (
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    code_of,
    principal_problem,
    text_of,
)
from gregor.replication.store.nodes import NodeFormatError, decode_json, encode_json, json_field

VERSION = 1
RESOURCE_TYPES = tuple(code for code in ResourceType if code is not ResourceType.ANY)
ROOTS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
PERSISTENT_PATHS = (
    *(f"{root}/{text_of(resource)}" for root in ROOTS.values() for resource in RESOURCE_TYPES),
    *CHANGES.values(),
)
_CHANGE_PREFIX = "acl_changes_"
# ZooKeeper refuses these characters, and the names "." and "..", in a path; a slash would begin another node.
_NOT_IN_PATHS = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def name_problem(name: str) -> str | None:
    """Return why a pattern of this name cannot be stored, None if it can."""
    if name in (".", ".."):
        return f"{name!r} cannot be the name of a node in ZooKeeper"
    found = _NOT_IN_PATHS.search(name)
    return None if found is None else f"{name!r} contains {found[0]!r}, which the name of a node in ZooKeeper cannot"


def pattern_path(pattern: Pattern) -> str:
    return f"{type_path(pattern.pattern_type, pattern.resource)}/{pattern.name}"


def type_path(pattern_type: PatternType, resource: ResourceType) -> str:
    return f"{ROOTS[pattern_type]}/{text_of(resource)}"


def change_prefix(pattern: Pattern) -> str:
    """Return the path of a new notice; the store appends its number."""
    return f"{CHANGES[pattern.pattern_type]}/{_CHANGE_PREFIX}"


def encode_rules(rules: Iterable[Rule]) -> bytes:
    acls = [
        {
            "principal": rule.principal,
            "permissionType": text_of(rule.permission),
            "host": rule.host,
            "operation": text_of(rule.operation),
        }
        for rule in rules
    ]
    return encode_json({"acls": acls, "version": VERSION})


def decode_rules(data: bytes, what: str) -> tuple[Rule, ...]:
    """Return the rules of a node, each once; an empty node has none. Raises NodeFormatError."""
    if not data:
        return ()
    value = decode_json(data, what)
    version = json_field(value, "version", int, what)
    if version != VERSION:
        raise NodeFormatError(f"{what}: version {version}, not {VERSION}")
    rules: dict[Rule, None] = {}
    for entry in json_field(value, "acls", list, what):
        if not isinstance(entry, dict):
            raise NodeFormatError(f"{what}: {entry!r} is not a rule")
        principal, permission, operation, host = (
            json_field(entry, key, str, what) for key in ("principal", "permissionType", "operation", "host")
        )
        if (problem := principal_problem(principal)) is not None:
            raise NodeFormatError(f"{what}: {problem}")
        permission_code, operation_code = code_of(Permission, permission), code_of(Operation, operation)
        if permission_code in (None, Permission.ANY) or operation_code in (None, Operation.ANY):
            raise NodeFormatError(f"{what}: permission {permission!r} of operation {operation!r} is unknown")
        assert permission_code is not None and operation_code is not None
        rules[Rule(principal, permission_code, operation_code, host)] = None
    return tuple(rules)


def encode_change(pattern: Pattern) -> bytes:
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource.name}:{pattern.name}".encode()
    return encode_json(
        {
            "version": VERSION,
            "resourceType": pattern.resource.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_literal_change(data: bytes) -> Pattern:
    """Return the changed pattern. Releases before 2.0 wrote `Topic:name`. Raises NodeFormatError."""
    what = CHANGES[PatternType.LITERAL]
    try:
        kind, _, name = data.decode().partition(":")
    except UnicodeDecodeError as error:
        raise NodeFormatError(f"{what}: {error}") from None
    return Pattern(_resource(kind, what), name)


def decode_extended_change(data: bytes) -> Pattern:
    """Return the changed pattern. Raises NodeFormatError."""
    what = CHANGES[PatternType.PREFIXED]
    value = decode_json(data, what)
    version = json_field(value, "version", int, what)
    if version > VERSION:
        raise NodeFormatError(f"{what}: version {version} is newer than {VERSION}")
    kind, name, text = (json_field(value, key, str, what) for key in ("resourceType", "name", "patternType"))
    pattern_type = code_of(PatternType, text)
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise NodeFormatError(f"{what}: pattern type {text!r}")
    assert pattern_type is not None
    return Pattern(_resource(kind, what), name, pattern_type)


def _resource(text: str, what: str) -> ResourceType:
    resource = code_of(ResourceType, text)
    if resource is None or resource is ResourceType.ANY:
        raise NodeFormatError(f"{what}: resource type {text!r}")
    return resource
