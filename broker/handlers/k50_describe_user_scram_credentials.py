"""DescribeUserScramCredentials (key 50), versions 0 to 0: the mechanisms and iterations of users (KIP-554).

No part of a credential is returned. A user without credentials is RESOURCE_NOT_FOUND, and one that is named twice
DUPLICATE_RESOURCE.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
from gregor.protocol.sasl.scram import MECHANISMS

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.broker.security.parts import SecurityParts
    from gregor.protocol.turns import Gate

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Info = DescribeUserScramCredentialsResponse.CredentialInfo


class ScramCredentialsContext(Protocol):
    """The credentials of users."""

    @property
    def gate(self) -> Gate: ...
    @property
    def security(self) -> SecurityParts: ...


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0)
async def describe_user_scram_credentials(
    broker: ScramCredentialsContext, request: DescribeUserScramCredentialsRequest, call: Call
) -> DescribeUserScramCredentialsResponse:
    turns = broker.gate.turns()
    times = Counter[str]()
    for one in request.users or ():
        await turns.next()
        times[one.name] += 1
    users = dict(broker.security.credentials.users)
    results = []
    for name in times or sorted(users):
        await turns.next()
        if times[name] > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            results.append(_refused(name, ErrorCode.DUPLICATE_RESOURCE, text))
        elif name not in users:
            text = f"Attempt to describe a user credential that does not exist: {name}"
            results.append(_refused(name, ErrorCode.RESOURCE_NOT_FOUND, text))
        else:
            infos = [
                DescribeUserScramCredentialsResponse.CredentialInfo(
                    mechanism=MECHANISMS[mechanism].number, iterations=credential.iterations
                )
                for mechanism, credential in sorted(users[name].items())
            ]
            results.append(_Result(user=name, error_message=None, credential_infos=infos))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _refused(
    name: str, code: ErrorCode, text: str
) -> DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult:
    return _Result(user=name, error_code=code, error_message=text)
