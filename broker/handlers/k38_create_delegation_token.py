"""CreateDelegationToken (key 38), versions 0 to 3: a secret with which others authenticate as its owner (KIP-48).

- 2 flexible; 3 tokens for another owner (KIP-373), which the guard checks where there is an authorizer.
- An anonymous client, and one that authenticated with a token: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.delegation_tokens import in_time, refusal_of
from gregor.broker.part_of import delegation_tokens
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from gregor.protocol.principal import USER, Principal, requester_in

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.entities.tokens import DelegationTokens


@handles(ApiKey.CREATE_DELEGATION_TOKEN, 0, 3, changes=True)
@on_part(delegation_tokens)
async def create_delegation_token(
    tokens: DelegationTokens, request: CreateDelegationTokenRequest, call: Call
) -> CreateDelegationTokenResponse:
    own = call.connection.principal
    requester = requester_in(call.version, own)
    owner = Principal(request.owner_principal_type or own.principal_type, request.owner_principal_name or own.name)
    renewers = tuple(Principal(one.principal_type, one.principal_name) for one in request.renewers)
    code = refusal_of(call)
    if not code and any(one.principal_type != USER for one in (*renewers, owner)):
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    if code:
        return _refused(code, owner, requester)
    try:
        token = await in_time(lambda: tokens.create(owner, own, renewers, request.max_lifetime_ms))
    except KafkaError as error:
        return _refused(error.code, owner, requester)
    return CreateDelegationTokenResponse(
        principal_type=owner.principal_type,
        principal_name=owner.name,
        token_requester_principal_type=requester.principal_type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token.token_id),
    )


def _refused(code: ErrorCode, owner: Principal, requester: Principal) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.principal_type,
        principal_name=owner.name,
        token_requester_principal_type=requester.principal_type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
