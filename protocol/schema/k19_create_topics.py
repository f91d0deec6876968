"""CreateTopics (19).

1: validation only, and error messages. 2: throttle time. 4: -1 requests the broker's default partition and replica
count (KIP-464). 5: flexible, and the response describes the topic (KIP-525). 6: quota errors (KIP-599). 7: the
response has the topic id.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "CreateTopicsRequest",
    api_key=19,
    versions="0-7",
    flexible="5+",
    fields=[
        Field(
            "topics",
            "[]CreatableTopic",
            help="Topics to create.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "num_partitions",
                    "int32",
                    help="Partition count, -1 for the broker's default or when assignments are given.",
                ),
                Field(
                    "replication_factor",
                    "int16",
                    help="Replicas of each partition, -1 for the broker's default or when assignments are given.",
                ),
                Field(
                    "assignments",
                    "[]CreatableReplicaAssignment",
                    help="Which brokers hold which partition; empty to leave that to the broker.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("broker_ids", "[]int32", help="Broker ids, the preferred leader first."),
                    ],
                ),
                Field(
                    "configs",
                    "[]CreatableTopicConfig",
                    help="Settings of the topic.",
                    fields=[
                        Field("name", "string", help="Setting."),
                        Field("value", "string", nullable="0+", help="Its value."),
                    ],
                ),
            ],
        ),
        Field(
            "timeout_ms",
            "int32",
            default=60000,
            help="Time after which the broker responds with a timeout.",
        ),
        Field("validate_only", "bool", "1+", help="Check, but change nothing."),
    ],
)

RESPONSE = Message(
    "CreateTopicsResponse",
    api_key=19,
    versions="0-7",
    flexible="5+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            "2+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "topics",
            "[]CreatableTopicResult",
            help="Topics.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field("topic_id", "uuid", "7+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field(
                    "error_message",
                    "string",
                    "1+",
                    nullable="0+",
                    ignorable=True,
                    help="Error message, or null.",
                ),
                Field(
                    "topic_config_error_code",
                    "int16",
                    "5+",
                    tag=0,
                    ignorable=True,
                    help="Error for which the settings are missing in the response, else 0.",
                ),
                Field(
                    "num_partitions",
                    "int32",
                    "5+",
                    default=-1,
                    ignorable=True,
                    help="Partition count, -1 when unknown.",
                ),
                Field(
                    "replication_factor",
                    "int16",
                    "5+",
                    default=-1,
                    ignorable=True,
                    help="Replicas of each partition, -1 when unknown.",
                ),
                Field(
                    "configs",
                    "[]CreatableTopicConfigs",
                    "5+",
                    nullable="5+",
                    ignorable=True,
                    help="All settings of the topic, or null.",
                    fields=[
                        Field("name", "string", "5+", help="Setting."),
                        Field("value", "string", "5+", nullable="5+", help="Its value, null if it is a secret."),
                        Field("read_only", "bool", "5+", help="Whether it cannot be changed."),
                        Field(
                            "config_source",
                            "int8",
                            "5+",
                            default=-1,
                            ignorable=True,
                            help="Source of the value, -1 when unknown.",
                        ),
                        Field("is_sensitive", "bool", "5+", help="Whether the value is a secret."),
                    ],
                ),
            ],
        ),
    ],
)
