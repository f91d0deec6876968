"""DescribeAcls (key 29), versions 0 to 3: the access rules that match a filter, as this broker knows them.

- 1 pattern types; 2 flexible; 3 resources of type user.
- Without an authorizer: SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gregor.broker.answers.acls import NO_AUTHORIZER, filter_of
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gregor.broker.context import Call
    from gregor.broker.security.parts import SecurityParts
    from gregor.protocol.acls import Pattern, Rule
    from gregor.protocol.turns import Gate, Turns


class AclsContext(Protocol):
    """The access rules."""

    @property
    def gate(self) -> Gate: ...
    @property
    def security(self) -> SecurityParts: ...


@handles(ApiKey.DESCRIBE_ACLS, 0, 3)
async def describe_acls(broker: AclsContext, request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    acls = broker.security.acls
    if acls is None:
        return _refused(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    try:
        wanted = filter_of(request)
    except KafkaError as error:
        return _refused(error.code, error.message)
    turns = broker.gate.turns()
    resources = []
    for pattern, rules in acls.matching(wanted):
        await turns.next()
        if rules:
            resources.append(await _resource(pattern, rules, turns))
    return DescribeAclsResponse(resources=resources)


async def _resource(pattern: Pattern, rules: Iterable[Rule], turns: Turns) -> DescribeAclsResponse.DescribeAclsResource:
    acls = []
    for rule in rules:
        await turns.next()
        acls.append(
            DescribeAclsResponse.AclDescription(
                principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission
            )
        )
    return DescribeAclsResponse.DescribeAclsResource(
        resource_type=pattern.resource, resource_name=pattern.name, pattern_type=pattern.pattern_type, acls=acls
    )


def _refused(code: ErrorCode, message: str | None) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message, resources=[])
