"""DeleteAcls (key 31), versions 0 to 3: remove the access rules that match filters; the response names them.

- 1 pattern types; 2 flexible; 3 resources of type user.
- A filter of the pattern type MATCH, or without a name, concerns the rules that this broker knows; the others concern
  those that are stored.
- Without an authorizer: SECURITY_DISABLED for each filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.acls import NO_AUTHORIZER, filter_of
from gregor.broker.part_of import acl_rules
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.protocol.acls import Acl, AclFilter
    from gregor.replication.entities.acls import AclStore


@handles(ApiKey.DELETE_ACLS, 0, 3, changes=True)
@on_part(acl_rules)
async def delete_acls(acls: AclStore | None, request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    if acls is None:
        disabled = KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[_refused(disabled)] * len(request.filters))
    results: dict[int, DeleteAclsResponse.DeleteAclsFilterResult] = {}
    wanted: dict[int, AclFilter] = {}
    for slot, fields in enumerate(request.filters):
        try:
            wanted[slot] = filter_of(fields)
        except KafkaError as error:
            results[slot] = _refused(error)
    for slot, removed in zip(wanted, await acls.remove(list(wanted.values())), strict=True):
        matching = [_matching(acl, error) for acl, error in removed]
        results[slot] = DeleteAclsResponse.DeleteAclsFilterResult(matching_acls=matching)
    return DeleteAclsResponse(filter_results=[results[slot] for slot in range(len(request.filters))])


def _refused(error: KafkaError) -> DeleteAclsResponse.DeleteAclsFilterResult:
    return DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=error.code, error_message=error.message, matching_acls=[]
    )


def _matching(acl: Acl, error: KafkaError | None) -> DeleteAclsResponse.DeleteAclsMatchingAcl:
    pattern, rule = acl
    return DeleteAclsResponse.DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
