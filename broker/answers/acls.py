"""Access rules and filters of them, from and to the fields of the requests DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from gregor.protocol.acls import Acl, AclFilter, Operation, Pattern, PatternType, Permission, ResourceType, Rule
from gregor.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    pass

NO_AUTHORIZER = "no authorizer is configured: everybody may do everything"

CodeT = TypeVar("CodeT", bound=IntEnum)


def filter_of(fields: Any) -> AclFilter:
    """Return the filter of a request, or of one of its parts. Raises KafkaError INVALID_REQUEST for an unknown code."""
    return AclFilter(
        _code(ResourceType, fields.resource_type_filter),
        fields.resource_name_filter,
        _code(PatternType, fields.pattern_type_filter),
        fields.principal_filter,
        fields.host_filter,
        _code(Operation, fields.operation),
        _code(Permission, fields.permission_type),
    )


def acl_of(creation: Any) -> Acl:
    """Return the rule to add. Raises KafkaError INVALID_REQUEST for a code that stands for several, or for none."""
    pattern = Pattern(
        _single(ResourceType, creation.resource_type),
        creation.resource_name,
        _single(PatternType, creation.resource_pattern_type),
    )
    permission, operation = _single(Permission, creation.permission_type), _single(Operation, creation.operation)
    return Acl(pattern, Rule(creation.principal, permission, operation, creation.host))


def _single(codes: type[CodeT], number: int) -> CodeT:
    code = _code(codes, number)
    if code.name in ("ANY", "MATCH"):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{codes.__name__} {code.name} is for filters only")
    return code


def _code(codes: type[CodeT], number: int) -> CodeT:
    try:
        return codes(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{codes.__name__} {number} is unknown") from None
