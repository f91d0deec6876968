"""OffsetCommit (8): positions of a group, which its coordinator stores.

0: kept in ZooKeeper. 1: generation and member, a time for each partition. 2: retention time, until 4. 6: leader
epochs. 7: static members (KIP-345). 8: flexible. 9: members of the consumer protocol (KIP-848). 10: topic ids for
names.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "OffsetCommitRequest",
    api_key=8,
    versions="0-10",
    flexible="8+",
    fields=[
        Field("group_id", "string", help="Group."),
        Field(
            "generation_id_or_member_epoch",
            "int32",
            "1+",
            default=-1,
            ignorable=True,
            help="Generation, or the member epoch in the consumer protocol; -1 from outside.",
        ),
        Field("member_id", "string", "1+", ignorable=True, help="Member id, empty from outside of the group."),
        Field(
            "group_instance_id",
            "string",
            "7+",
            nullable="7+",
            default=None,
            help="Name of a static member, or null.",
        ),
        Field(
            "retention_time_ms",
            "int64",
            "2-4",
            default=-1,
            ignorable=True,
            help="Retention time of the offsets, -1 for the broker's setting.",
        ),
        Field(
            "topics",
            "[]OffsetCommitRequestTopic",
            help="Topics to commit.",
            fields=[
                Field("name", "string", "0-9", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "10+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field(
                    "partitions",
                    "[]OffsetCommitRequestPartition",
                    help="Partitions to commit.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("committed_offset", "int64", help="Offset to read next."),
                        Field(
                            "committed_leader_epoch",
                            "int32",
                            "6+",
                            default=-1,
                            ignorable=True,
                            help="Leader epoch of the record before, -1 when unknown.",
                        ),
                        Field(
                            "commit_timestamp",
                            "int64",
                            "1",
                            default=-1,
                            help="Milliseconds from which the offset is kept, -1 for now.",
                        ),
                        Field(
                            "committed_metadata",
                            "string",
                            nullable="0+",
                            help="Text that the consumer stores with the offset.",
                        ),
                    ],
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "OffsetCommitResponse",
    api_key=8,
    versions="0-10",
    flexible="8+",
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
            "[]OffsetCommitResponseTopic",
            help="Topics.",
            fields=[
                Field("name", "string", "0-9", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "10+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field(
                    "partitions",
                    "[]OffsetCommitResponsePartition",
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
