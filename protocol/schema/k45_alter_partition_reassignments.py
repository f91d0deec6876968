"""AlterPartitionReassignments (45): partitions sent to other brokers, or called back on their way (KIP-455)."""

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
            help="How long the broker may take before it answers with a timeout.",
        ),
        Field(
            "allow_replication_factor_change",
            "bool",
            versions="1+",
            default=True,
            help="Whether a partition may get more or fewer replicas than it has.",
        ),
        Field(
            "topics",
            "[]ReassignableTopic",
            help="Topics with partitions to send elsewhere.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]ReassignablePartition",
                    help="Partitions to send elsewhere.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field(
                            "replicas",
                            "[]int32",
                            nullable="0+",
                            default=None,
                            help="Broker ids of the replicas to be, or null to call a partition back.",
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
            help="How long the broker holds the client back for a quota it exceeded; 0 if it did not.",
        ),
        Field(
            "allow_replication_factor_change",
            "bool",
            versions="1+",
            default=True,
            ignorable=True,
            help="As it was asked.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 when all went well."),
        Field("error_message", "string", nullable="0+", help="What went wrong, in words, or null."),
        Field(
            "responses",
            "[]ReassignableTopicResponse",
            help="One answer for each topic asked about.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]ReassignablePartitionResponse",
                    help="One answer for each partition asked about.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 when all went well."),
                        Field("error_message", "string", nullable="0+", help="What went wrong, in words, or null."),
                    ],
                ),
            ],
        ),
    ],
)
