"""CreatePartitions (37): more partitions for topics.

2: flexible. 3: quota errors (KIP-599).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "CreatePartitionsRequest",
    api_key=37,
    versions="0-3",
    flexible="2+",
    fields=[
        Field(
            "topics",
            "[]CreatePartitionsTopic",
            help="Topics to extend.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field("count", "int32", help="Partition count afterwards."),
                Field(
                    "assignments",
                    "[]CreatePartitionsAssignment",
                    nullable="0+",
                    help="Brokers of each new partition, in order; null to leave that to the broker.",
                    fields=[
                        Field("broker_ids", "[]int32", help="Broker ids, the preferred leader first."),
                    ],
                ),
            ],
        ),
        Field("timeout_ms", "int32", help="Time after which the broker responds with a timeout."),
        Field("validate_only", "bool", help="Check, but change nothing."),
    ],
)

RESPONSE = Message(
    "CreatePartitionsResponse",
    api_key=37,
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
            "[]CreatePartitionsTopicResult",
            help="Topics.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field(
                    "error_message",
                    "string",
                    nullable="0+",
                    default=None,
                    help="Error message, or null.",
                ),
            ],
        ),
    ],
)
