"""TxnOffsetCommit (28): offsets of a group that count once the transaction is committed.

2: leader epochs. 3: flexible; generation, member and instance of the consumer are checked (KIP-447). 4:
TRANSACTION_ABORTABLE (KIP-890). 5: adds the group to the transaction, as AddOffsetsToTxn does. 6 (Kafka 4.4):
topic ids in place of names (KIP-1319).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "TxnOffsetCommitRequest",
    api_key=28,
    versions="0-6",
    flexible="3+",
    fields=[
        Field("transactional_id", "string", help="Transactional id."),
        Field("group_id", "string", help="Group."),
        Field("producer_id", "int64", help="Producer id of the transaction."),
        Field("producer_epoch", "int16", help="Its producer epoch."),
        Field(
            "generation_id",
            "int32",
            "3+",
            default=-1,
            help="Generation, or the member epoch in the consumer protocol; -1 from outside.",
        ),
        Field("member_id", "string", "3+", help="Member id, empty from outside of the group."),
        Field(
            "group_instance_id",
            "string",
            "3+",
            nullable="3+",
            default=None,
            help="Name of a static member, or null.",
        ),
        Field(
            "topics",
            "[]TxnOffsetCommitRequestTopic",
            help="Topics to commit.",
            fields=[
                Field("name", "string", "0-5", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "6+", ignorable=True, help="Topic id."),
                Field(
                    "partitions",
                    "[]TxnOffsetCommitRequestPartition",
                    help="Partitions to commit.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("committed_offset", "int64", help="Offset to read next."),
                        Field(
                            "committed_leader_epoch",
                            "int32",
                            "2+",
                            default=-1,
                            ignorable=True,
                            help="Leader epoch of the record before, -1 when unknown.",
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
    "TxnOffsetCommitResponse",
    api_key=28,
    versions="0-6",
    flexible="3+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "topics",
            "[]TxnOffsetCommitResponseTopic",
            help="Topics.",
            fields=[
                Field("name", "string", "0-5", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "6+", ignorable=True, help="Topic id."),
                Field(
                    "partitions",
                    "[]TxnOffsetCommitResponsePartition",
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
