"""RenewDelegationToken (key 39), versions 0 to 2: move the end of a delegation token (KIP-48). 2 flexible.

Its owner and its renewers may do this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.delegation_tokens import in_time, refusal_of
from gregor.broker.part_of import delegation_tokens
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import KafkaError
from gregor.protocol.messages import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.entities.tokens import DelegationTokens


@handles(ApiKey.RENEW_DELEGATION_TOKEN, 0, 2, changes=True)
@on_part(delegation_tokens)
async def renew_delegation_token(
    tokens: DelegationTokens, request: RenewDelegationTokenRequest, call: Call
) -> RenewDelegationTokenResponse:
    code = refusal_of(call)
    if code:
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
    principal, secret = call.connection.principal, bytes(request.hmac)
    try:
        end_ms = await in_time(lambda: tokens.renew(principal, secret, request.renew_period_ms))
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=end_ms)
