"""OffsetFetch (9): the committed positions of groups.

0: kept in ZooKeeper. 2: null requests all topics, error of the whole group. 5: leader epochs. 6: flexible. 7: the
response can wait for open transactions (KIP-447). 8: many groups in one request (KIP-709). 9: members of the consumer
protocol (KIP-848). 10: topic ids for names.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "OffsetFetchRequest",
    api_key=9,
    versions="0-10",
    flexible="6+",
    fields=[
        Field("group_id", "string", "0-7", help="Group."),
        Field(
            "topics",
            "[]OffsetFetchRequestTopic",
            "0-7",
            nullable="2-7",
            help="Requested topics, null for all.",
            fields=[
                Field("name", "string", "0-7", help="Topic name."),
                Field("partition_indexes", "[]int32", "0-7", help="Partition numbers."),
            ],
        ),
        Field(
            "groups",
            "[]OffsetFetchRequestGroup",
            "8+",
            help="Requested groups.",
            fields=[
                Field("group_id", "string", "8+", help="Group."),
                Field(
                    "member_id",
                    "string",
                    "9+",
                    nullable="9+",
                    default=None,
                    ignorable=True,
                    help="Member id in the consumer protocol, or null.",
                ),
                Field(
                    "member_epoch",
                    "int32",
                    "9+",
                    default=-1,
                    ignorable=True,
                    help="Member epoch in the consumer protocol, -1 for none.",
                ),
                Field(
                    "topics",
                    "[]OffsetFetchRequestTopics",
                    "8+",
                    nullable="8+",
                    help="Requested topics, null for all.",
                    fields=[
                        Field("name", "string", "8-9", ignorable=True, help="Topic name."),
                        Field("topic_id", "uuid", "10+", ignorable=True, help="Topic id; all zeros if unknown."),
                        Field("partition_indexes", "[]int32", "8+", help="Partition numbers."),
                    ],
                ),
            ],
        ),
        Field(
            "require_stable",
            "bool",
            "7+",
            help="Respond with a retriable error if an offset belongs to a transaction that has not ended.",
        ),
    ],
)

RESPONSE = Message(
    "OffsetFetchResponse",
    api_key=9,
    versions="0-10",
    flexible="6+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            "3+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "topics",
            "[]OffsetFetchResponseTopic",
            "0-7",
            help="Topics.",
            fields=[
                Field("name", "string", "0-7", help="Topic name."),
                Field(
                    "partitions",
                    "[]OffsetFetchResponsePartition",
                    "0-7",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", "0-7", help="Partition number."),
                        Field("committed_offset", "int64", "0-7", help="Offset to read next, -1 for none."),
                        Field(
                            "committed_leader_epoch",
                            "int32",
                            "5-7",
                            default=-1,
                            ignorable=True,
                            help="Leader epoch of the record before, -1 when unknown.",
                        ),
                        Field(
                            "metadata",
                            "string",
                            "0-7",
                            nullable="0-7",
                            help="Text that was committed with the offset, or null.",
                        ),
                        Field("error_code", "int16", "0-7", help="An ErrorCode; 0 for success."),
                    ],
                ),
            ],
        ),
        Field("error_code", "int16", "2-7", ignorable=True, help="An ErrorCode; 0 for success."),
        Field(
            "groups",
            "[]OffsetFetchResponseGroup",
            "8+",
            help="Groups.",
            fields=[
                Field("group_id", "string", "8+", help="Group."),
                Field(
                    "topics",
                    "[]OffsetFetchResponseTopics",
                    "8+",
                    help="Topics.",
                    fields=[
                        Field("name", "string", "8-9", ignorable=True, help="Topic name."),
                        Field("topic_id", "uuid", "10+", ignorable=True, help="Topic id; all zeros if unknown."),
                        Field(
                            "partitions",
                            "[]OffsetFetchResponsePartitions",
                            "8+",
                            help="Partitions.",
                            fields=[
                                Field("partition_index", "int32", "8+", help="Partition number."),
                                Field("committed_offset", "int64", "8+", help="Offset to read next, -1 for none."),
                                Field(
                                    "committed_leader_epoch",
                                    "int32",
                                    "8+",
                                    default=-1,
                                    ignorable=True,
                                    help="Leader epoch of the record before, -1 when unknown.",
                                ),
                                Field(
                                    "metadata",
                                    "string",
                                    "8+",
                                    nullable="8+",
                                    help="Text that was committed with the offset, or null.",
                                ),
                                Field("error_code", "int16", "8+", help="An ErrorCode; 0 for success."),
                            ],
                        ),
                    ],
                ),
                Field("error_code", "int16", "8+", help="An ErrorCode; 0 for success."),
            ],
        ),
    ],
)
