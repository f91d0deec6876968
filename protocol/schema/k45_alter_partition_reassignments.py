"""AlterPartitionReassignments (45): move partitions to other brokers, or cancel that (KIP-455)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "AlterPartitionReassignmentsRequest",
    api_key=45,
    versions="0-1",
    flexible="0+",
    fields=[
        Field(
            "timeout_ms",
            "int32",
            default=60000,
            help="Time after which the broker responds with a timeout.",
        ),
        Field(
            "allow_replication_factor_change",
            "bool",
            versions="1+",
            default=True,
            help="Whether the number of replicas of a partition may change.",
        ),
        Field(
            "topics",
            "[]ReassignableTopic",
            help="Topics with partitions to reassign.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]ReassignablePartition",
                    help="Partitions to reassign.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field(
                            "replicas",
                            "[]int32",
                            nullable="0+",
                            default=None,
                            help="Broker ids of the new replicas, or null to cancel a reassignment.",
                        ),
                    ],
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "AlterPartitionReassignmentsResponse",
    api_key=45,
    versions="0-1",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "allow_replication_factor_change",
            "bool",
            versions="1+",
            default=True,
            ignorable=True,
            help="As in the request.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("error_message", "string", nullable="0+", help="Error message, or null."),
        Field(
            "responses",
            "[]ReassignableTopicResponse",
            help="One entry for each requested topic.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]ReassignablePartitionResponse",
                    help="One entry for each requested partition.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                        Field("error_message", "string", nullable="0+", help="Error message, or null."),
                    ],
                ),
            ],
        ),
    ],
)
