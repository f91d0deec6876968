"""CreateDelegationToken (38): a secret with which others authenticate as its owner (KIP-48).

1: as 0. 2: flexible. 3: tokens for another owner (KIP-373).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "CreateDelegationTokenRequest",
    api_key=38,
    versions="0-3",
    flexible="2+",
    fields=[
        Field("owner_principal_type", "string", "3+", nullable="3+", help="Type of the owner; null: the client."),
        Field("owner_principal_name", "string", "3+", nullable="3+", help="Name of the owner; null: the client."),
        Field(
            "renewers",
            "[]CreatableRenewers",
            help="Principals that may renew the token before its end, beside its owner.",
            fields=[
                Field("principal_type", "string", help="Type of the principal, such as User."),
                Field("principal_name", "string", help="Name of the principal."),
            ],
        ),
        Field("max_lifetime_ms", "int64", help="Longest life of the token in milliseconds; -1: that of the broker."),
    ],
)

RESPONSE = Message(
    "CreateDelegationTokenResponse",
    api_key=38,
    versions="0-3",
    flexible="2+",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("principal_type", "string", help="Type of the owner, such as User."),
        Field("principal_name", "string", help="Name of the owner."),
        Field("token_requester_principal_type", "string", "3+", help="Type of the client."),
        Field("token_requester_principal_name", "string", "3+", help="Name of the client."),
        Field("issue_timestamp_ms", "int64", help="Time of the creation."),
        Field("expiry_timestamp_ms", "int64", help="Time at which the token ends unless it is renewed."),
        Field("max_timestamp_ms", "int64", help="Time beyond which it cannot be renewed."),
        Field("token_id", "string", help="Id of the token."),
        Field("hmac", "bytes", help="The secret."),
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
    ],
)
