"""DescribeLogDirs (35): the data folders of a broker, with sizes.

2: flexible. 3: an error of the whole response. 4: sizes of the volume (KIP-827). 5: folders that accept no new
partitions (KIP-1066).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeLogDirsRequest",
    api_key=35,
    versions="0-5",
    flexible="2+",
    fields=[
        Field(
            "topics",
            "[]DescribableLogDirTopic",
            nullable="0+",
            help="Requested topics, null for all.",
            fields=[
                Field("topic", "string", help="Topic name."),
                Field("partitions", "[]int32", help="Partition numbers."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "DescribeLogDirsResponse",
    api_key=35,
    versions="0-5",
    flexible="2+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", "3+", ignorable=True, help="An ErrorCode; 0 for success."),
        Field(
            "results",
            "[]DescribeLogDirsResult",
            help="Data folders.",
            fields=[
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("log_dir", "string", help="Absolute path of the data folder."),
                Field(
                    "topics",
                    "[]DescribeLogDirsTopic",
                    help="Topics with partitions in it.",
                    fields=[
                        Field("name", "string", help="Topic name."),
                        Field(
                            "partitions",
                            "[]DescribeLogDirsPartition",
                            help="Partitions.",
                            fields=[
                                Field("partition_index", "int32", help="Partition number."),
                                Field("partition_size", "int64", help="Bytes of all its segments."),
                                Field(
                                    "offset_lag",
                                    "int64",
                                    help="Lag behind the high watermark; of a copy, behind the original.",
                                ),
                                Field(
                                    "is_future_key",
                                    "bool",
                                    help="Whether this is a copy that a move is making, to replace the original.",
                                ),
                            ],
                        ),
                    ],
                ),
                Field(
                    "total_bytes",
                    "int64",
                    "4+",
                    default=-1,
                    ignorable=True,
                    help="Size of the volume, -1 when unknown.",
                ),
                Field(
                    "usable_bytes",
                    "int64",
                    "4+",
                    default=-1,
                    ignorable=True,
                    help="Free bytes of the volume, -1 when unknown.",
                ),
                Field("is_cordoned", "bool", "5+", ignorable=True, help="Whether it accepts no new partitions."),
            ],
        ),
    ],
)
