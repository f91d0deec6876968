"""AlterUserScramCredentials (51): set and remove credentials; the client hashes the passwords (KIP-554)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "AlterUserScramCredentialsRequest",
    api_key=51,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "deletions",
            "[]ScramCredentialDeletion",
            help="Credentials to remove.",
            fields=[
                Field("name", "string", help="Name of the user."),
                Field("mechanism", "int8", help="1 SCRAM-SHA-256, 2 SCRAM-SHA-512."),
            ],
        ),
        Field(
            "upsertions",
            "[]ScramCredentialUpsertion",
            help="Credentials to set.",
            fields=[
                Field("name", "string", help="Name of the user."),
                Field("mechanism", "int8", help="1 SCRAM-SHA-256, 2 SCRAM-SHA-512."),
                Field("iterations", "int32", help="Iterations of the hash."),
                Field("salt", "bytes", help="Random salt."),
                Field("salted_password", "bytes", help="The hashed password."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "AlterUserScramCredentialsResponse",
    api_key=51,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "results",
            "[]AlterUserScramCredentialsResult",
            help="One entry for each user of the request.",
            fields=[
                Field("user", "string", help="Name of the user."),
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("error_message", "string", nullable="0+", help="Error message, or null."),
            ],
        ),
    ],
)
