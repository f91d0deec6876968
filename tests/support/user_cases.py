"""Requests about users, for the judge of authorization: delegation tokens, quotas and SCRAM credentials.

The owner of the token is anna. No request changes what a later one is about.
"""

from __future__ import annotations

from typing import Any

from gregor.protocol import messages as m
from tests.support.authorization_cases import Cases, outline

OWNER = "anna"
DAY_MS = 24 * 3600 * 1000
TOKEN_NAMES = ("principal_name", "token_requester_principal_name")


def user_cases(hmac: bytes) -> Cases:
    """`hmac` is that of anna's token. The cases that make a token come last."""
    found: Cases = {"DescribeDelegationToken": (m.DescribeDelegationTokenRequest(owners=None), 3)}
    for name, secret in (("anna's token", hmac), ("no token", b"unknown")):
        found |= {
            f"RenewDelegationToken of {name}": (
                m.RenewDelegationTokenRequest(hmac=secret, renew_period_ms=DAY_MS),
                2,
            ),
            f"ExpireDelegationToken of {name}": (
                m.ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=DAY_MS),
                2,
            ),
        }
    quotas, credentials = m.AlterClientQuotasRequest, m.AlterUserScramCredentialsRequest
    entry = quotas.EntryData(
        entity=[quotas.EntityData(entity_type="user", entity_name=OWNER)],
        ops=[quotas.OpData(key="producer_byte_rate", value=1e6, remove=False)],
    )
    name = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(principal_type="User", principal_name=OWNER)
    nobody = m.DescribeUserScramCredentialsRequest.UserName(name="nobody")
    return {
        **found,
        "DescribeDelegationToken of anna": (m.DescribeDelegationTokenRequest(owners=[name]), 3),
        "DescribeClientQuotas": (m.DescribeClientQuotasRequest(components=[], strict=False), 1),
        "AlterClientQuotas": (quotas(entries=[entry], validate_only=True), 1),
        # Apache Kafka 4.3.1 never responds to a client without rights that does not name the users.
        "DescribeUserScramCredentials": (m.DescribeUserScramCredentialsRequest(users=[nobody]), 0),
        "AlterUserScramCredentials": (
            credentials(deletions=[credentials.ScramCredentialDeletion(name="nobody", mechanism=1)], upsertions=[]),
            0,
        ),
        "CreateDelegationToken": (created(None), 3),
        "CreateDelegationToken for anna": (created(OWNER), 3),
    }


def created(owner: str | None) -> Any:
    """Return a request for a token of the client itself, or of another user."""
    kind = None if owner is None else "User"
    return m.CreateDelegationTokenRequest(owner_principal_type=kind, owner_principal_name=owner, max_lifetime_ms=DAY_MS)


def user_outline(response: Any) -> Any:
    """Return the error codes and names of a response; of tokens, each owner and requester once."""
    found = outline(response)
    for name in TOKEN_NAMES:
        if hasattr(response, name):
            found[name] = getattr(response, name)
    if hasattr(response, "tokens"):
        found["tokens"] = sorted({tuple(getattr(token, name) for name in TOKEN_NAMES) for token in response.tokens})
    return found
