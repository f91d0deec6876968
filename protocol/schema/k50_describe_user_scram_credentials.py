"""DescribeUserScramCredentials (50): mechanisms and iterations of users (KIP-554)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeUserScramCredentialsRequest",
    api_key=50,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "users",
            "[]UserName",
            nullable="0+",
            help="Users; null or none: all.",
            fields=[
                Field("name", "string", help="Name of the user."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "DescribeUserScramCredentialsResponse",
    api_key=50,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("error_message", "string", nullable="0+", help="Error message, or null."),
        Field(
            "results",
            "[]DescribeUserScramCredentialsResult",
            help="Users.",
            fields=[
                Field("user", "string", help="Name of the user."),
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("error_message", "string", nullable="0+", help="Error message, or null."),
                Field(
                    "credential_infos",
                    "[]CredentialInfo",
                    help="Credentials of the user.",
                    fields=[
                        Field("mechanism", "int8", help="1 SCRAM-SHA-256, 2 SCRAM-SHA-512."),
                        Field("iterations", "int32", help="Iterations of the hash."),
                    ],
                ),
            ],
        ),
    ],
)
