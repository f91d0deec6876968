"""ConsumerGroupHeartbeat (68): a member joins, stays in, or leaves a group of the consumer protocol (KIP-848).

Version 1 adds the regular expression, and member ids are made by the members (KIP-1082).
"""

from gregor.protocol.codec.model import Field, Message, Struct

REQUEST = Message(
    "ConsumerGroupHeartbeatRequest",
    api_key=68,
    versions="0-1",
    flexible="0+",
    fields=[
        Field("group_id", "string", help="Group."),
        Field("member_id", "string", help="Member id; the same for the whole life of the consumer process."),
        Field(
            "member_epoch",
            "int32",
            help="Member epoch; 0 to join, -1 to leave, -2 for a static member that will come back.",
        ),
        Field(
            "instance_id",
            "string",
            nullable="0+",
            default=None,
            help="Name of a static member; null for none, or as before.",
        ),
        Field("rack_id", "string", nullable="0+", default=None, help="Its rack; null for none, or as before."),
        Field(
            "rebalance_timeout_ms",
            "int32",
            default=-1,
            help="Time in which the member must revoke partitions, in milliseconds; -1 if it is as before.",
        ),
        Field(
            "subscribed_topic_names",
            "[]string",
            nullable="0+",
            default=None,
            help="Names of the topics that it subscribes to; null if they are as before.",
        ),
        Field(
            "subscribed_topic_regex",
            "string",
            "1+",
            nullable="1+",
            default=None,
            help="Regular expression of names that it subscribes to; null if it is as before.",
        ),
        Field(
            "server_assignor",
            "string",
            nullable="0+",
            default=None,
            help="Assignor that it prefers; null for none, or as before.",
        ),
        Field(
            "topic_partitions",
            "[]TopicPartitions",
            nullable="0+",
            default=None,
            help="Partitions that the member owns; null if they are as before.",
            fields=[
                Field("topic_id", "uuid", help="Topic id."),
                Field("partitions", "[]int32", help="Partition numbers."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "ConsumerGroupHeartbeatResponse",
    api_key=68,
    versions="0-1",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("error_message", "string", nullable="0+", default=None, help="Text about the error, or null."),
        Field("member_id", "string", nullable="0+", default=None, help="Member id, or null."),
        Field("member_epoch", "int32", help="Member epoch."),
        Field("heartbeat_interval_ms", "int32", help="Milliseconds until the next heartbeat is due."),
        Field(
            "assignment",
            "Assignment",
            nullable="0+",
            default=None,
            help="Assignment of the member; null if it is as before.",
            fields=[
                Field("topic_partitions", "[]TopicPartitions", help="Partitions that it can use at once."),
            ],
        ),
    ],
    structs=[
        Struct(
            "TopicPartitions",
            [
                Field("topic_id", "uuid", help="Topic id."),
                Field("partitions", "[]int32", help="Partition numbers."),
            ],
        ),
    ],
)
