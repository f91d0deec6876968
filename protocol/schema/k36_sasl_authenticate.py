"""SaslAuthenticate (36): a token of a SASL exchange (KIP-152).

1: the lifetime of the session, after which the client authenticates again (KIP-368). 2: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "SaslAuthenticateRequest",
    api_key=36,
    versions="0-2",
    flexible="2+",
    fields=[
        Field("auth_bytes", "bytes", help="Token of the client."),
    ],
)

RESPONSE = Message(
    "SaslAuthenticateResponse",
    api_key=36,
    versions="0-2",
    flexible="2+",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("error_message", "string", nullable="0+", help="Error message, or null."),
        Field("auth_bytes", "bytes", help="Token of the server."),
        Field(
            "session_lifetime_ms",
            "int64",
            "1+",
            ignorable=True,
            help="Milliseconds after which the client must have authenticated again; 0: never.",
        ),
    ],
)
