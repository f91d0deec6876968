"""DescribeAcls (key 29), versions 0 to 3: SECURITY_DISABLED, the response of a broker without an authorizer.

- 1 pattern types; 2 flexible; 3 resources of type user.
- Gap: there are no access rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call

NO_AUTHORIZER = "no authorizer is configured: everybody may do everything"


@handles(ApiKey.DESCRIBE_ACLS, 0, 3)
def describe_acls(broker: object, request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[])
