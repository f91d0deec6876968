"""ElectLeaders (43): make the preferred, or any living, replica the leader.

1: unclean elections, error of the whole response (KIP-460). 2: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ElectLeadersRequest",
    api_key=43,
    versions="0-2",
    flexible="2+",
    fields=[
        Field("election_type", "int8", "1+", help="0 the preferred replica, 1 also one outside of the ISR."),
        Field(
            "topic_partitions",
            "[]TopicPartitions",
            nullable="0+",
            help="Partitions of the election, null for all.",
            fields=[
                Field("topic", "string", help="Topic name."),
                Field("partitions", "[]int32", help="Partition numbers."),
            ],
        ),
        Field(
            "timeout_ms",
            "int32",
            default=60000,
            help="Time after which the broker responds with a timeout.",
        ),
    ],
)

RESPONSE = Message(
    "ElectLeadersResponse",
    api_key=43,
    versions="0-2",
    flexible="2+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", "1+", help="An ErrorCode; 0 for success."),
        Field(
            "replica_election_results",
            "[]ReplicaElectionResult",
            help="Topics.",
            fields=[
                Field("topic", "string", help="Topic name."),
                Field(
                    "partition_result",
                    "[]PartitionResult",
                    help="Partitions.",
                    fields=[
                        Field("partition_id", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                        Field("error_message", "string", nullable="0+", help="Error message, or null."),
                    ],
                ),
            ],
        ),
    ],
)
