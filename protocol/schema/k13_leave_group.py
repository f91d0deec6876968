"""LeaveGroup (13).

3: many members in one request, static ones too (KIP-345). 4: flexible. 5: reason (KIP-800).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "LeaveGroupRequest",
    api_key=13,
    versions="0-5",
    flexible="4+",
    fields=[
        Field("group_id", "string", help="Group."),
        Field("member_id", "string", "0-2", help="Member id."),
        Field(
            "members",
            "[]MemberIdentity",
            "3+",
            help="Members that leave.",
            fields=[
                Field("member_id", "string", "3+", help="Member id."),
                Field(
                    "group_instance_id",
                    "string",
                    "3+",
                    nullable="3+",
                    default=None,
                    help="Name of a static member, or null.",
                ),
                Field(
                    "reason",
                    "string",
                    "5+",
                    nullable="5+",
                    default=None,
                    ignorable=True,
                    help="The reason as text, or null.",
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "LeaveGroupResponse",
    api_key=13,
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
            "members",
            "[]MemberResponse",
            "3+",
            help="Members that left.",
            fields=[
                Field("member_id", "string", "3+", help="Member id."),
                Field("group_instance_id", "string", "3+", nullable="3+", help="Name of a static member, or null."),
                Field("error_code", "int16", "3+", help="An ErrorCode; 0 for success."),
            ],
        ),
    ],
)
