"""DeleteTopics (20).

1: throttle time. 4: flexible. 5: error messages and quota errors (KIP-599). 6: topics may be named by id (KIP-516).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DeleteTopicsRequest",
    api_key=20,
    versions="0-6",
    flexible="4+",
    fields=[
        Field(
            "topics",
            "[]DeleteTopicState",
            "6+",
            help="Topics to delete.",
            fields=[
                Field("name", "string", "6+", nullable="6+", default=None, help="Topic name, null when given by id."),
                Field("topic_id", "uuid", "6+", help="Topic id, zeros when given by name."),
            ],
        ),
        Field("topic_names", "[]string", "0-5", ignorable=True, help="Names of the topics to delete."),
        Field("timeout_ms", "int32", help="Time after which the broker responds with a timeout."),
    ],
)

RESPONSE = Message(
    "DeleteTopicsResponse",
    api_key=20,
    versions="0-6",
    flexible="4+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            "1+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "responses",
            "[]DeletableTopicResult",
            help="Topics.",
            fields=[
                Field("name", "string", nullable="6+", help="Topic name, null for an unknown id."),
                Field("topic_id", "uuid", "6+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field(
                    "error_message",
                    "string",
                    "5+",
                    nullable="5+",
                    default=None,
                    ignorable=True,
                    help="Error message, or null.",
                ),
            ],
        ),
    ],
)
