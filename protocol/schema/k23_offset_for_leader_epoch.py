"""OffsetForLeaderEpoch (23): the end offset of an epoch in the leader's log, by which followers find a divergence.

1: the response names the epoch. 2: the leader epoch is checked (KIP-320). 3: replica id. 4: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "OffsetForLeaderEpochRequest",
    api_key=23,
    versions="0-4",
    flexible="4+",
    fields=[
        Field(
            "replica_id",
            "int32",
            "3+",
            default=-2,
            ignorable=True,
            help="Broker id of a follower, -1 for a consumer, -2 for a tool that may see beyond the high watermark.",
        ),
        Field(
            "topics",
            "[]OffsetForLeaderTopic",
            help="Requested topics.",
            fields=[
                Field("topic", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]OffsetForLeaderPartition",
                    help="Requested partitions.",
                    fields=[
                        Field("partition", "int32", help="Partition number."),
                        Field(
                            "current_leader_epoch",
                            "int32",
                            "2+",
                            default=-1,
                            ignorable=True,
                            help="Leader epoch as the client knows it, to be checked; -1 for no check.",
                        ),
                        Field("leader_epoch", "int32", help="The epoch of the requested end offset."),
                    ],
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "OffsetForLeaderEpochResponse",
    api_key=23,
    versions="0-4",
    flexible="4+",
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
            "[]OffsetForLeaderTopicResult",
            help="Topics.",
            fields=[
                Field("topic", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]EpochEndOffset",
                    help="Partitions.",
                    fields=[
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                        Field("partition", "int32", help="Partition number."),
                        Field(
                            "leader_epoch",
                            "int32",
                            "1+",
                            default=-1,
                            ignorable=True,
                            help="The greatest epoch not above the requested one, -1 for none.",
                        ),
                        Field("end_offset", "int64", default=-1, help="Offset after its last record, -1 for none."),
                    ],
                ),
            ],
        ),
    ],
)
