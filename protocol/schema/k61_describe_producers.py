"""DescribeProducers (61): the producers that a partition leader remembers (KIP-664)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeProducersRequest",
    api_key=61,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "topics",
            "[]TopicRequest",
            help="Topics.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field("partition_indexes", "[]int32", help="Partition numbers."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "DescribeProducersResponse",
    api_key=61,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "topics",
            "[]TopicResponse",
            help="Topics.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]PartitionResponse",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                        Field("error_message", "string", nullable="0+", default=None, help="Cause, or null."),
                        Field(
                            "active_producers",
                            "[]ProducerState",
                            help="Producers that have not expired.",
                            fields=[
                                Field("producer_id", "int64", help="Producer id."),
                                Field("producer_epoch", "int32", help="Producer epoch."),
                                Field(
                                    "last_sequence",
                                    "int32",
                                    default=-1,
                                    help="Sequence number of the producer's last record, -1 for none.",
                                ),
                                Field(
                                    "last_timestamp",
                                    "int64",
                                    default=-1,
                                    help="Time of the producer's last batch, in milliseconds; -1 when unknown.",
                                ),
                                Field(
                                    "coordinator_epoch",
                                    "int32",
                                    help="Epoch of the coordinator that wrote the last marker, -1 for none.",
                                ),
                                Field(
                                    "current_txn_start_offset",
                                    "int64",
                                    default=-1,
                                    help="First offset of the open transaction, -1 for none.",
                                ),
                            ],
                        ),
                    ],
                ),
            ],
        ),
    ],
)
