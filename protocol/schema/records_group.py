"""Keys and values of `__consumer_offsets`.

Each begins with an int16, its version, and the fields of that version follow. The version of a key is the kind of the
record: 0 and 1 a committed offset, 2 a group. (Apache Kafka 4 calls that number the record type; the bytes are the
same.) From version 4 of a value on, new fields are tagged, so that older brokers can read them (KIP-915).
"""

from gregor.protocol.codec.model import Field, Message

OFFSET_COMMIT_KEY = Message(
    "OffsetCommitKey",
    versions="0-1",
    fields=[
        Field("group", "string", help="Group."),
        Field("topic", "string", help="Topic name."),
        Field("partition", "int32", help="Partition number."),
    ],
)

OFFSET_COMMIT_VALUE = Message(
    "OffsetCommitValue",
    versions="0-4",
    flexible="4+",
    fields=[
        Field("offset", "int64", help="Offset to read next."),
        Field(
            "leader_epoch",
            "int32",
            "3+",
            default=-1,
            ignorable=True,
            help="Leader epoch of the record before, -1 when unknown.",
        ),
        Field("metadata", "string", help="Text that was committed with the offset."),
        Field("commit_timestamp", "int64", help="When it was committed, in milliseconds."),
        Field(
            "expire_timestamp",
            "int64",
            "1",
            default=-1,
            ignorable=True,
            help="Time of expiry, in milliseconds; -1 by the broker's setting.",
        ),
        Field("topic_id", "uuid", "4+", tag=0, ignorable=True, help="Topic id; all zeros if unknown."),
    ],
)

GROUP_METADATA_KEY = Message(
    "GroupMetadataKey",
    versions="2",
    fields=[
        Field("group", "string", help="Group."),
    ],
)

GROUP_METADATA_VALUE = Message(
    "GroupMetadataValue",
    versions="0-4",
    flexible="4+",
    fields=[
        Field("protocol_type", "string", help='Protocol type of the members, such as "consumer", or empty.'),
        Field("generation", "int32", help="Generation of the group."),
        Field("protocol", "string", nullable="0+", help="The assignor that the group agreed on, or null."),
        Field("leader", "string", nullable="0+", help="Member id of the leader, or null."),
        Field(
            "current_state_timestamp",
            "int64",
            "2+",
            default=-1,
            ignorable=True,
            help="Time of the last change of state, in milliseconds; -1 when unknown.",
        ),
        Field(
            "members",
            "[]MemberMetadata",
            help="Members.",
            fields=[
                Field("member_id", "string", help="Member id."),
                Field(
                    "group_instance_id",
                    "string",
                    "3+",
                    nullable="3+",
                    default=None,
                    ignorable=True,
                    help="Name of a static member, or null.",
                ),
                Field("client_id", "string", help="Client id of the member."),
                Field("client_host", "string", help="Address it connects from."),
                Field(
                    "rebalance_timeout",
                    "int32",
                    "1+",
                    default=-1,
                    ignorable=True,
                    help="Time in which it must rejoin, in milliseconds; -1 when unknown.",
                ),
                Field("session_timeout", "int32", help="Milliseconds without a heartbeat after which it is removed."),
                Field("subscription", "bytes", help="Data that it sent for the chosen assignor."),
                Field("assignment", "bytes", help="Its assignment."),
            ],
        ),
    ],
)
