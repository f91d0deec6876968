"""ConsumerGroupDescribe (69): groups of the consumer protocol, as their coordinator knows them (KIP-848).

Version 1 adds the protocol of each member (KIP-1099).
"""

from gregor.protocol.codec.model import Field, Message, Struct

REQUEST = Message(
    "ConsumerGroupDescribeRequest",
    api_key=69,
    versions="0-1",
    flexible="0+",
    fields=[
        Field("group_ids", "[]string", help="Groups to describe."),
        Field("include_authorized_operations", "bool", help="Whether to include the operations allowed to the client."),
    ],
)

RESPONSE = Message(
    "ConsumerGroupDescribeResponse",
    api_key=69,
    versions="0-1",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "groups",
            "[]DescribedGroup",
            help="Groups.",
            fields=[
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("error_message", "string", nullable="0+", default=None, help="Text about the error, or null."),
                Field("group_id", "string", help="Group."),
                Field("group_state", "string", help="State of the group, or empty."),
                Field("group_epoch", "int32", help="Group epoch."),
                Field("assignment_epoch", "int32", help="Group epoch that the target assignment was computed for."),
                Field("assignor_name", "string", help="Assignor of the group."),
                Field(
                    "members",
                    "[]Member",
                    help="Members.",
                    fields=[
                        Field("member_id", "string", help="Member id."),
                        Field(
                            "instance_id",
                            "string",
                            nullable="0+",
                            default=None,
                            help="Name of a static member, or null.",
                        ),
                        Field("rack_id", "string", nullable="0+", default=None, help="Rack of the member, or null."),
                        Field("member_epoch", "int32", help="Member epoch."),
                        Field("client_id", "string", help="Client id."),
                        Field("client_host", "string", help="Address it connects from."),
                        Field("subscribed_topic_names", "[]string", help="Names of topics that it subscribes to."),
                        Field(
                            "subscribed_topic_regex",
                            "string",
                            nullable="0+",
                            default=None,
                            help="Regular expression of names that it subscribes to, or null.",
                        ),
                        Field("assignment", "Assignment", help="Partitions that it owns."),
                        Field("target_assignment", "Assignment", help="Partitions that it will own."),
                        Field(
                            "member_type",
                            "int8",
                            "1+",
                            default=-1,
                            ignorable=True,
                            help="Protocol of the member: 0 classic, 1 consumer, -1 when unknown.",
                        ),
                    ],
                ),
                Field(
                    "authorized_operations",
                    "int32",
                    default=-(2**31),
                    help="Bit field of the operations allowed to the client; the lowest int32 if not requested.",
                ),
            ],
        ),
    ],
    structs=[
        Struct(
            "TopicPartitions",
            [
                Field("topic_id", "uuid", help="Topic id."),
                Field("topic_name", "string", help="Topic name."),
                Field("partitions", "[]int32", help="Partition numbers."),
            ],
        ),
        Struct(
            "Assignment",
            [
                Field("topic_partitions", "[]TopicPartitions", help="Partitions by topic."),
            ],
        ),
    ],
)
