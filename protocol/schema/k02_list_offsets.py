"""ListOffsets (2): the offset that belongs to a timestamp, or to the special values below zero.

0: offsets where segments begin. 1: one offset (KIP-79). 2: isolation level. 4: leader epochs. 6: flexible. 7: -3, the
record of the greatest timestamp (KIP-734). 8: -4, the first offset kept locally (KIP-405). 9: -5, the last offset in
remote storage. 10: a timeout for remote reads. 11: -6, the earliest offset not yet uploaded.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ListOffsetsRequest",
    api_key=2,
    versions="0-11",
    flexible="6+",
    fields=[
        Field("replica_id", "int32", help="Broker id of a follower, -1 for a consumer."),
        Field("isolation_level", "int8", "2+", help="0 reads all records, 1 only committed ones."),
        Field(
            "topics",
            "[]ListOffsetsTopic",
            help="Requested topics.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]ListOffsetsPartition",
                    help="Requested partitions.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field(
                            "current_leader_epoch",
                            "int32",
                            "4+",
                            default=-1,
                            ignorable=True,
                            help="Leader epoch as the client knows it, to be checked; -1 for no check.",
                        ),
                        Field(
                            "timestamp",
                            "int64",
                            help="Milliseconds, or -1 the end, -2 the start, and the other special values.",
                        ),
                        Field("max_num_offsets", "int32", "0", default=1, help="Maximum number of offsets."),
                    ],
                ),
            ],
        ),
        Field(
            "timeout_ms",
            "int32",
            "10+",
            ignorable=True,
            help="Time after which the broker responds with a timeout.",
        ),
    ],
)

RESPONSE = Message(
    "ListOffsetsResponse",
    api_key=2,
    versions="0-11",
    flexible="6+",
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
            "[]ListOffsetsTopicResponse",
            help="Topics.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]ListOffsetsPartitionResponse",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                        Field("old_style_offsets", "[]int64", "0", help="Offsets found, the greatest first."),
                        Field(
                            "timestamp",
                            "int64",
                            "1+",
                            default=-1,
                            help="Timestamp of the record found, -1 for none.",
                        ),
                        Field("offset", "int64", "1+", default=-1, help="Offset found, -1 for none."),
                        Field(
                            "leader_epoch",
                            "int32",
                            "4+",
                            default=-1,
                            help="Leader epoch of the record found, -1 when unknown.",
                        ),
                    ],
                ),
            ],
        ),
    ],
)
