"""DescribeDelegationToken (41): the tokens of some owners, with their secrets (KIP-48).

1: as 0. 2: flexible. 3: the client that created a token (KIP-373).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeDelegationTokenRequest",
    api_key=41,
    versions="0-3",
    flexible="2+",
    fields=[
        Field(
            "owners",
            "[]DescribeDelegationTokenOwner",
            nullable="0+",
            help="Owners; null: all.",
            fields=[
                Field("principal_type", "string", help="Type of the owner, such as User."),
                Field("principal_name", "string", help="Name of the owner."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "DescribeDelegationTokenResponse",
    api_key=41,
    versions="0-3",
    flexible="2+",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field(
            "tokens",
            "[]DescribedDelegationToken",
            help="Tokens.",
            fields=[
                Field("principal_type", "string", help="Type of the owner, such as User."),
                Field("principal_name", "string", help="Name of the owner."),
                Field(
                    "token_requester_principal_type",
                    "string",
                    "3+",
                    help="Type of its creator.",
                ),
                Field(
                    "token_requester_principal_name",
                    "string",
                    "3+",
                    help="Name of its creator.",
                ),
                Field("issue_timestamp", "int64", help="Time of the creation."),
                Field("expiry_timestamp", "int64", help="Time at which the token ends unless it is renewed."),
                Field("max_timestamp", "int64", help="Time beyond which it cannot be renewed."),
                Field("token_id", "string", help="Id of the token."),
                Field("hmac", "bytes", help="The secret."),
                Field(
                    "renewers",
                    "[]DescribedDelegationTokenRenewer",
                    help="Principals that may renew it.",
                    fields=[
                        Field("principal_type", "string", help="Type of the principal, such as User."),
                        Field("principal_name", "string", help="Name of the principal."),
                    ],
                ),
            ],
        ),
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
    ],
)
