"""The guards of users: delegation tokens, quotas and SCRAM credentials (keys 38, 41, 48 to 51).

The renewal and the end of a token (39, 40) are for its owner and its renewers, which their handlers check.
"""

from __future__ import annotations

from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import GuardContext, Serve, after_in_steps, each, each_topic
from gregor.broker.authorization.model import Operation, ResourceType
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import response_class
from gregor.protocol.principal import Principal, requester_in

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.protocol.turns import Steps

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TEXT = "Cluster authorization failed."
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
DESCRIBE_SCRAM, ALTER_SCRAM = 50, 51


def _response_class(api_key: int) -> Any:
    return response_class(api_key)


def create_delegation_token(broker: GuardContext, request: Any, call: Call, serve: Serve) -> Any:
    """CREATE_TOKENS on the user that will own the token, if it is another one (KIP-373). A client that may not use
    tokens at all is refused for that reason by the handler."""
    own = call.connection.principal
    owner = Principal(request.owner_principal_type or own.principal_type, request.owner_principal_name or own.name)
    if (
        owner == own
        or not call.may_use_tokens
        or broker.authorizer.allows(call, Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
    ):
        return serve(request)
    requester = requester_in(call.version, own)
    return _response_class(call.api_key)(
        error_code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        principal_type=owner.principal_type,
        principal_name=owner.name,
        token_requester_principal_type=requester.principal_type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )


def describe_delegation_token(broker: GuardContext, request: Any, call: Call, serve: Serve) -> Any:
    """Own tokens, those that the client may renew, those on which it has DESCRIBE, and those of users on which it has
    DESCRIBE_TOKENS (Kafka: DelegationTokenManager.filterToken)."""
    own = call.connection.principal
    authorizer = broker.authorizer

    def is_visible(token: Any) -> bool:
        owner = Principal(token.principal_type, token.principal_name)
        renewers = (Principal(one.principal_type, one.principal_name) for one in token.renewers)
        return (
            owner == own
            or own in renewers
            or authorizer.allows(
                call, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, logs_denial=False
            )
            or authorizer.allows(call, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(owner), logs_denial=False)
        )

    def hide(response: Any) -> Steps[Any]:
        tokens = response.tokens
        visible = yield from each(tokens, is_visible)
        return response.replaced(tokens=list(compress(tokens, visible)))

    return after_in_steps(broker, serve(request), hide)


def describe_client_quotas(_request: Any, _version: int) -> Any:
    return _response_class(DESCRIBE_CLIENT_QUOTAS)(error_code=_DENIED, error_message=TEXT, entries=None)


def alter_client_quotas(request: Any, _version: int) -> Steps[Any]:
    response = _response_class(ALTER_CLIENT_QUOTAS)
    entries = yield from each_topic(
        request.entries,
        attrgetter("entity"),
        lambda one: response.EntityData(entity_type=one.entity_type, entity_name=one.entity_name),
        lambda _, entity: response.EntryData(error_code=_DENIED, error_message=TEXT, entity=entity),
    )
    return response(entries=entries)


def describe_user_scram_credentials(request: Any, _version: int) -> Steps[Any]:
    """A result without a name for each user of the request (Kafka: DescribeUserScramCredentialsRequest)."""
    response = _response_class(DESCRIBE_SCRAM)
    make = response.DescribeUserScramCredentialsResult
    results = yield from each(request.users or (), lambda _: make(user="", error_code=_DENIED, error_message=TEXT))
    return response(error_code=_DENIED, error_message=TEXT, results=results)


def alter_user_scram_credentials(request: Any, _version: int) -> Steps[Any]:
    response = _response_class(ALTER_SCRAM)
    users = {one.name for one in (*request.deletions, *request.upsertions)}
    make = response.AlterUserScramCredentialsResult
    results = yield from each(sorted(users), lambda user: make(user=user, error_code=_DENIED, error_message=TEXT))
    return response(results=results)
