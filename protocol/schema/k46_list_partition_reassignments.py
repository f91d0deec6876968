"""ListPartitionReassignments (46): partitions that are being moved to other brokers (KIP-455)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ListPartitionReassignmentsRequest",
    api_key=46,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "timeout_ms",
            "int32",
            default=60000,
            help="Time after which the broker responds with a timeout.",
        ),
        Field(
            "topics",
            "[]ListPartitionReassignmentsTopics",
            nullable="0+",
            default=None,
            help="Requested topics, null for all.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field("partition_indexes", "[]int32", help="Partition numbers."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "ListPartitionReassignmentsResponse",
    api_key=46,
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
            "topics",
            "[]OngoingTopicReassignment",
            help="Topics with partitions under reassignment.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]OngoingPartitionReassignment",
                    help="Partitions under reassignment.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("replicas", "[]int32", help="Broker ids of all replicas, the preferred leader first."),
                        Field("adding_replicas", "[]int32", help="Those of them that are being added."),
                        Field("removing_replicas", "[]int32", help="Those of them that are being removed."),
                    ],
                ),
            ],
        ),
    ],
)
