"""Keys and values of `__consumer_offsets`.

Each begins with an int16, its version, and then follow the fields at that version. The version of a key tells what it
is the key of: 0 and 1 a committed offset, 2 a group. (Apache Kafka 4 calls that number the record type; the bytes are
the same.) From version 4 of a value on new fields come as tags only, so that older brokers can read them (KIP-915).
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
            help="When it may be forgotten, in milliseconds; -1 by the broker's own time.",
        ),
        Field("topic_id", "uuid", "4+", tag=0, ignorable=True, help="Topic id; all zeros where unknown."),
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
        Field("protocol_type", "string", help='What the members are, such as "consumer", or empty.'),
        Field("generation", "int32", help="Generation of the group."),
        Field("protocol", "string", nullable="0+", help="The assignor that the group agreed on, or null."),
        Field("leader", "string", nullable="0+", help="Member id of the leader, or null."),
        Field(
            "current_state_timestamp",
            "int64",
            "2+",
            default=-1,
            ignorable=True,
            help="When the group got into this state, in milliseconds; -1 when unknown.",
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
                Field("client_id", "string", help="What its client calls itself."),
                Field("client_host", "string", help="Address it connects from."),
                Field(
                    "rebalance_timeout",
                    "int32",
                    "1+",
                    default=-1,
                    ignorable=True,
                    help="How long it may take to rejoin, in milliseconds; -1 when unknown.",
                ),
                Field("session_timeout", "int32", help="Milliseconds without a heartbeat after which it is removed."),
                Field("subscription", "bytes", help="What it sent under the chosen assignor."),
                Field("assignment", "bytes", help="Its share."),
            ],
        ),
    ],
)
