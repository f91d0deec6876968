"""DeleteGroups (42): groups without members.

2: flexible. 3 (Kafka 4.4): error messages.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DeleteGroupsRequest",
    api_key=42,
    versions="0-3",
    flexible="2+",
    fields=[
        Field("groups_names", "[]string", help="Groups to delete."),
    ],
)

RESPONSE = Message(
    "DeleteGroupsResponse",
    api_key=42,
    versions="0-3",
    flexible="2+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "results",
            "[]DeletableGroupResult",
            help="Groups.",
            fields=[
                Field("group_id", "string", help="Group."),
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field(
                    "error_message",
                    "string",
                    "3+",
                    nullable="3+",
                    default=None,
                    ignorable=True,
                    help="Cause of the error, or null.",
                ),
            ],
        ),
    ],
)
