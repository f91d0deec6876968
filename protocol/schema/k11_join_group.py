"""JoinGroup (11): enter a group, or its next generation.

1: rebalance timeout. 4: a new member gets its id first and joins again with it (KIP-394). 5: static members
(KIP-345). 6: flexible. 7: the response names the protocol type. 8: reason (KIP-800). 9: the leader may
skip the assignment (KIP-814).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "JoinGroupRequest",
    api_key=11,
    versions="0-9",
    flexible="6+",
    fields=[
        Field("group_id", "string", help="Group."),
        Field("session_timeout_ms", "int32", help="Time without a heartbeat after which the member is removed."),
        Field(
            "rebalance_timeout_ms",
            "int32",
            "1+",
            default=-1,
            ignorable=True,
            help="Time in which members must rejoin; -1 for the session timeout.",
        ),
        Field("member_id", "string", help="Member id, empty for a new member."),
        Field(
            "group_instance_id",
            "string",
            "5+",
            nullable="5+",
            default=None,
            help="Name of a static member, or null.",
        ),
        Field("protocol_type", "string", help='Protocol type of the members, such as "consumer" or "connect".'),
        Field(
            "protocols",
            "[]JoinGroupRequestProtocol",
            help="Assignors that the member can do, best first.",
            fields=[
                Field("name", "string", help="Assignor."),
                Field(
                    "metadata",
                    "bytes",
                    help="Data of the member for the leader under this protocol, such as its subscription.",
                ),
            ],
        ),
        Field(
            "reason", "string", "8+", nullable="8+", default=None, ignorable=True, help="The reason as text, or null."
        ),
    ],
)

RESPONSE = Message(
    "JoinGroupResponse",
    api_key=11,
    versions="0-9",
    flexible="6+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            "2+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("generation_id", "int32", default=-1, help="The new generation, -1 on failure."),
        Field(
            "protocol_type",
            "string",
            "7+",
            nullable="7+",
            default=None,
            ignorable=True,
            help='Protocol type of the members, such as "consumer"; null if unknown.',
        ),
        Field("protocol_name", "string", nullable="7+", help="The assignor that the group agreed on, or null."),
        Field("leader", "string", help="Member id of the leader."),
        Field("skip_assignment", "bool", "9+", help="The leader need not assign anew."),
        Field("member_id", "string", help="Member id."),
        Field(
            "members",
            "[]JoinGroupResponseMember",
            help="All members for the leader, none for the others.",
            fields=[
                Field("member_id", "string", help="Member id."),
                Field(
                    "group_instance_id",
                    "string",
                    "5+",
                    nullable="5+",
                    default=None,
                    ignorable=True,
                    help="Name of a static member, or null.",
                ),
                Field("metadata", "bytes", help="Data that the member sent for the chosen assignor."),
            ],
        ),
    ],
)
