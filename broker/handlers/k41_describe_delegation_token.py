"""DescribeDelegationToken (key 41), versions 0 to 3: the tokens of some owners or renewers, with their secrets.

- 2 flexible; 3 the client that created a token.
- Without an authorizer every authenticated client sees all tokens, as in Apache Kafka; with one, the guard hides
  those of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.delegation_tokens import refusal_of
from gregor.broker.part_of import delegation_tokens
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from gregor.protocol.principal import Principal, requester_in

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.entities.tokens import DelegationTokens, Token

_Described = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, 3)
@on_part(delegation_tokens)
def describe_delegation_token(
    tokens: DelegationTokens, request: DescribeDelegationTokenRequest, call: Call
) -> DescribeDelegationTokenResponse:
    code = refusal_of(call)
    if not code and not tokens.enabled:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if code:
        return DescribeDelegationTokenResponse(error_code=code, tokens=[])
    owners = None
    if request.owners is not None:
        owners = [Principal(one.principal_type, one.principal_name) for one in request.owners]
    found = tokens.of_owners(owners)
    return DescribeDelegationTokenResponse(tokens=[_described(token, tokens, call.version) for token in found])


def _described(
    token: Token, tokens: DelegationTokens, version: int
) -> DescribeDelegationTokenResponse.DescribedDelegationToken:
    requester = requester_in(version, token.requester)
    return _Described(
        principal_type=token.owner.principal_type,
        principal_name=token.owner.name,
        token_requester_principal_type=requester.principal_type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token.token_id),
        renewers=[_Renewer(principal_type=one.principal_type, principal_name=one.name) for one in token.renewers],
    )
