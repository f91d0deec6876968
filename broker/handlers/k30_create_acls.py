"""CreateAcls (key 30), versions 0 to 3: SECURITY_DISABLED for each rule, the response of a broker without an
authorizer.

- 1 pattern types; 2 flexible; 3 resources of type user.
- Gap: there are no access rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.handlers.k29_describe_acls import NO_AUTHORIZER
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call


@handles(ApiKey.CREATE_ACLS, 0, 3)
def create_acls(broker: object, request: CreateAclsRequest, call: Call) -> CreateAclsResponse:
    refused = CreateAclsResponse.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
