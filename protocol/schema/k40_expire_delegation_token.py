"""ExpireDelegationToken (40): end a delegation token, now or earlier than before (KIP-48).

1: as 0. 2: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ExpireDelegationTokenRequest",
    api_key=40,
    versions="0-2",
    flexible="2+",
    fields=[
        Field("hmac", "bytes", help="The secret of the token."),
        Field("expiry_time_period_ms", "int64", help="Milliseconds from now to the end; negative: at once."),
    ],
)

RESPONSE = Message(
    "ExpireDelegationTokenResponse",
    api_key=40,
    versions="0-2",
    flexible="2+",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("expiry_timestamp_ms", "int64", help="Time at which the token ends."),
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
    ],
)
