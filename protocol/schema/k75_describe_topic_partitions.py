"""DescribeTopicPartitions (75): topics and their partitions, page by page (KIP-966)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeTopicPartitionsRequest",
    api_key=75,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "topics",
            "[]TopicRequest",
            help="Requested topics, none for all.",
            fields=[Field("name", "string", help="Topic name.")],
        ),
        Field("response_partition_limit", "int32", default=2000, help="Maximum number of partitions in one response."),
        Field(
            "cursor",
            "Cursor",
            nullable="0+",
            default=None,
            help="Cursor of the previous response, or null for the start.",
            fields=[
                Field("topic_name", "string", help="First topic of the response."),
                Field("partition_index", "int32", help="First partition of that topic."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "DescribeTopicPartitionsResponse",
    api_key=75,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "topics",
            "[]DescribeTopicPartitionsResponseTopic",
            help="Topics.",
            fields=[
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("name", "string", nullable="0+", help="Topic name, or null."),
                Field("topic_id", "uuid", ignorable=True, help="Topic id; all zeros if unknown."),
                Field("is_internal", "bool", ignorable=True, help="Whether it belongs to the brokers themselves."),
                Field(
                    "partitions",
                    "[]DescribeTopicPartitionsResponsePartition",
                    help="Partitions.",
                    fields=[
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                        Field("partition_index", "int32", help="Partition number."),
                        Field("leader_id", "int32", help="Broker id of the leader, -1 for none."),
                        Field(
                            "leader_epoch",
                            "int32",
                            default=-1,
                            ignorable=True,
                            help="Epoch of that leadership, -1 when unknown.",
                        ),
                        Field("replica_nodes", "[]int32", help="Broker ids of all replicas, preferred leader first."),
                        Field("isr_nodes", "[]int32", help="Broker ids of the replicas in sync."),
                        Field(
                            "eligible_leader_replicas",
                            "[]int32",
                            nullable="0+",
                            default=None,
                            help="Broker ids outside of the ISR that could lead without loss, or null.",
                        ),
                        Field(
                            "last_known_elr",
                            "[]int32",
                            nullable="0+",
                            default=None,
                            help="Broker ids that could have led before, or null.",
                        ),
                        Field("offline_replicas", "[]int32", ignorable=True, help="Broker ids of replicas offline."),
                    ],
                ),
                Field(
                    "topic_authorized_operations",
                    "int32",
                    default=-(2**31),
                    help="Bit field of the operations allowed to the client; the lowest int32 if not requested.",
                ),
            ],
        ),
        Field(
            "next_cursor",
            "Cursor",
            nullable="0+",
            default=None,
            help="Cursor for the next request, null at the end.",
            fields=[
                Field("topic_name", "string", help="First topic of the response."),
                Field("partition_index", "int32", help="First partition of that topic."),
            ],
        ),
    ],
)
