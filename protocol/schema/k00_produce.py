"""Produce (0): record batches to append, per topic and partition.

3: transactions; one v2 batch per partition. 5: log start offset in the response. 7: zstd allowed. 8: refused records
are named. 9: flexible. 10: the response names a new leader (KIP-951). 12: partitions join the transaction implicitly
(KIP-890). 13: topic ids instead of names (KIP-516). Versions 0-2 have message sets of magic 0 and 1;
4.x has removed them, but librdkafka expects them in ApiVersions.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ProduceRequest",
    api_key=0,
    versions="0-13",
    flexible="9+",
    fields=[
        Field(
            "transactional_id",
            "string",
            "3+",
            nullable="3+",
            default=None,
            help="Id of the transaction of the records, null outside of transactions.",
        ),
        Field(
            "acks", "int16", help="Replicas to wait for: 0 none and no response, 1 the leader, -1 all in-sync replicas."
        ),
        Field("timeout_ms", "int32", help="Time after which the broker responds with a timeout."),
        Field(
            "topic_data",
            "[]TopicProduceData",
            help="Topics to append to.",
            fields=[
                Field("name", "string", "0-12", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "13+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field(
                    "partition_data",
                    "[]PartitionProduceData",
                    help="Partitions to append to.",
                    fields=[
                        Field("index", "int32", help="Partition number."),
                        Field(
                            "records",
                            "records",
                            nullable="0+",
                            help="One record batch; message sets in versions 0 to 2.",
                        ),
                    ],
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "ProduceResponse",
    api_key=0,
    versions="0-13",
    flexible="9+",
    fields=[
        Field(
            "responses",
            "[]TopicProduceResponse",
            help="Topics appended to.",
            fields=[
                Field("name", "string", "0-12", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "13+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field(
                    "partition_responses",
                    "[]PartitionProduceResponse",
                    help="Partitions appended to.",
                    fields=[
                        Field("index", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                        Field("base_offset", "int64", help="Offset of the first record."),
                        Field(
                            "log_append_time_ms",
                            "int64",
                            "2+",
                            default=-1,
                            ignorable=True,
                            help="Broker time of all records, -1 if the topic keeps the producer's.",
                        ),
                        Field(
                            "log_start_offset",
                            "int64",
                            "5+",
                            default=-1,
                            ignorable=True,
                            help="First offset that the log still contains, -1 when unknown.",
                        ),
                        Field(
                            "record_errors",
                            "[]BatchIndexAndErrorMessage",
                            "8+",
                            ignorable=True,
                            help="The records for which the whole batch was refused.",
                            fields=[
                                Field("batch_index", "int32", "8+", help="Index of the record in its batch."),
                                Field(
                                    "batch_index_error_message",
                                    "string",
                                    "8+",
                                    nullable="8+",
                                    default=None,
                                    help="The error of that record, or null.",
                                ),
                            ],
                        ),
                        Field(
                            "error_message",
                            "string",
                            "8+",
                            nullable="8+",
                            default=None,
                            ignorable=True,
                            help="Reason for which the batch was refused, or null.",
                        ),
                        Field(
                            "current_leader",
                            "LeaderIdAndEpoch",
                            "10+",
                            tag=0,
                            help="The leader known to this broker, if that is another broker.",
                            fields=[
                                Field(
                                    "leader_id",
                                    "int32",
                                    "10+",
                                    default=-1,
                                    help="Broker id of the leader, -1 when unknown.",
                                ),
                                Field(
                                    "leader_epoch",
                                    "int32",
                                    "10+",
                                    default=-1,
                                    help="Epoch of that leadership, -1 when unknown.",
                                ),
                            ],
                        ),
                    ],
                ),
            ],
        ),
        Field(
            "throttle_time_ms",
            "int32",
            "1+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "node_endpoints",
            "[]NodeEndpoint",
            "10+",
            tag=0,
            help="Addresses of the leaders named above.",
            fields=[
                Field("node_id", "int32", "10+", help="Broker id."),
                Field("host", "string", "10+", help="Host name to connect to."),
                Field("port", "int32", "10+", help="TCP port."),
                Field("rack", "string", "10+", nullable="10+", default=None, help="Rack of the broker, or null."),
            ],
        ),
    ],
)
