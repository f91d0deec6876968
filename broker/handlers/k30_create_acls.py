"""CreateAcls (key 30), versions 0 to 3: add access rules, each with a result of its own.

- 1 pattern types; 2 flexible; 3 resources of type user.
- The rules are in effect on this broker when the response is sent, and on the others as soon as they are notified.
- INVALID_REQUEST: a code that is unknown or for filters only, an empty name, another cluster than kafka-cluster, a name
  that ZooKeeper cannot store, a principal without a type.
- Without an authorizer: SECURITY_DISABLED for each rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.acls import NO_AUTHORIZER, acl_of
from gregor.broker.part_of import acl_rules
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gregor.broker.context import Call
    from gregor.protocol.acls import Acl
    from gregor.replication.entities.acls import AclStore


@handles(ApiKey.CREATE_ACLS, 0, 3, changes=True)
@on_part(acl_rules)
def create_acls(
    acls: AclStore | None, request: CreateAclsRequest, call: Call
) -> CreateAclsResponse | Awaitable[CreateAclsResponse]:
    if acls is None:
        disabled = KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return CreateAclsResponse(results=[_result(disabled)] * len(request.creations))
    return _create(acls, request)


async def _create(acls: AclStore, request: CreateAclsRequest) -> CreateAclsResponse:
    errors: list[KafkaError | None] = [None] * len(request.creations)
    wanted: dict[int, Acl] = {}
    for slot, creation in enumerate(request.creations):
        try:
            wanted[slot] = acl_of(creation)
        except KafkaError as error:
            errors[slot] = error
    for slot, added in zip(wanted, await acls.add(list(wanted.values())), strict=True):
        errors[slot] = added
    return CreateAclsResponse(results=[_result(error) for error in errors])


def _result(error: KafkaError | None) -> CreateAclsResponse.AclCreationResult:
    if error is None:
        return CreateAclsResponse.AclCreationResult()
    return CreateAclsResponse.AclCreationResult(error_code=error.code, error_message=error.message)
