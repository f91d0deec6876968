"""OffsetDelete (47): delete committed positions of a group (KIP-496)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "OffsetDeleteRequest",
    api_key=47,
    versions="0",
    fields=[
        Field("group_id", "string", help="Group."),
        Field(
            "topics",
            "[]OffsetDeleteRequestTopic",
            help="Topics whose offsets are deleted.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]OffsetDeleteRequestPartition",
                    help="Partitions whose offsets are deleted.",
                    fields=[Field("partition_index", "int32", help="Partition number.")],
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "OffsetDeleteResponse",
    api_key=47,
    versions="0",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field(
            "throttle_time_ms",
            "int32",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "topics",
            "[]OffsetDeleteResponseTopic",
            help="Topics.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]OffsetDeleteResponsePartition",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                    ],
                ),
            ],
        ),
    ],
)
