"""DeleteAcls (key 31), versions 0 to 3: SECURITY_DISABLED for each filter, the response of a broker without an
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
from gregor.protocol.messages import DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call


@handles(ApiKey.DELETE_ACLS, 0, 3)
def delete_acls(broker: object, request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    refused = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
