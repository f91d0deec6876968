"""SyncGroup (14): the leader sends the assignment, every member receives its own.

3: static members (KIP-345). 4: flexible. 5: protocol type and name are checked (KIP-559).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "SyncGroupRequest",
    api_key=14,
    versions="0-5",
    flexible="4+",
    fields=[
        Field("group_id", "string", help="Group."),
        Field("generation_id", "int32", help="Generation of the group."),
        Field("member_id", "string", help="Member id."),
        Field(
            "group_instance_id",
            "string",
            "3+",
            nullable="3+",
            default=None,
            help="Name of a static member, or null.",
        ),
        Field(
            "protocol_type",
            "string",
            "5+",
            nullable="5+",
            default=None,
            ignorable=True,
            help='Protocol type of the members, such as "consumer"; null if unknown.',
        ),
        Field(
            "protocol_name",
            "string",
            "5+",
            nullable="5+",
            default=None,
            ignorable=True,
            help="The assignor that the group agreed on, or null.",
        ),
        Field(
            "assignments",
            "[]SyncGroupRequestAssignment",
            help="Every member's share, from the leader; else empty.",
            fields=[
                Field("member_id", "string", help="Member id."),
                Field("assignment", "bytes", help="Its share, in the form of the protocol type."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "SyncGroupResponse",
    api_key=14,
    versions="0-5",
    flexible="4+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            "1+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field(
            "protocol_type",
            "string",
            "5+",
            nullable="5+",
            default=None,
            ignorable=True,
            help='Protocol type of the members, such as "consumer"; null if unknown.',
        ),
        Field(
            "protocol_name",
            "string",
            "5+",
            nullable="5+",
            default=None,
            ignorable=True,
            help="The assignor that the group agreed on, or null.",
        ),
        Field("assignment", "bytes", help="The member's share, in the form of the protocol type."),
    ],
)
