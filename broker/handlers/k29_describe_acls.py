"""DescribeAcls (key 29), versions 0 to 3: the access rules that match a filter, as this broker knows them.

- 1 pattern types; 2 flexible; 3 resources of type user.
- Without an authorizer: SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.acls import NO_AUTHORIZER, filter_of
from gregor.broker.part_of import acl_rules
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.protocol.acls import Pattern
    from gregor.replication.entities.acls import AclStore


@handles(ApiKey.DESCRIBE_ACLS, 0, 3)
@on_part(acl_rules)
def describe_acls(acls: AclStore | None, request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    if acls is None:
        return _refused(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    try:
        found = acls.matching(filter_of(request))
    except KafkaError as error:
        return _refused(error.code, error.message)
    resources: dict[Pattern, DescribeAclsResponse.DescribeAclsResource] = {}
    for pattern, rule in found:
        if pattern not in resources:
            resources[pattern] = DescribeAclsResponse.DescribeAclsResource(
                resource_type=pattern.resource, resource_name=pattern.name, pattern_type=pattern.pattern_type, acls=[]
            )
        resources[pattern].acls.append(
            DescribeAclsResponse.AclDescription(
                principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


def _refused(code: ErrorCode, message: str | None) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message, resources=[])
