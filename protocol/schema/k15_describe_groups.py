"""DescribeGroups (15): state and members of classic groups.

3: authorized operations. 4: static members. 5: flexible. 6: GROUP_ID_NOT_FOUND in place of a dead group (KIP-1043).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeGroupsRequest",
    api_key=15,
    versions="0-6",
    flexible="5+",
    fields=[
        Field("groups", "[]string", help="Requested groups."),
        Field(
            "include_authorized_operations",
            "bool",
            "3+",
            help="Whether to include the operations allowed on each group.",
        ),
    ],
)

RESPONSE = Message(
    "DescribeGroupsResponse",
    api_key=15,
    versions="0-6",
    flexible="5+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            "1+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "groups",
            "[]DescribedGroup",
            help="Groups.",
            fields=[
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field(
                    "error_message",
                    "string",
                    "6+",
                    nullable="6+",
                    default=None,
                    help="Error message, or null.",
                ),
                Field("group_id", "string", help="Group."),
                Field("group_state", "string", help="State of the group, or empty."),
                Field("protocol_type", "string", help='Protocol type of the members, such as "consumer", or empty.'),
                Field("protocol_data", "string", help="The assignor that the group agreed on, or empty."),
                Field(
                    "members",
                    "[]DescribedGroupMember",
                    help="Members.",
                    fields=[
                        Field("member_id", "string", help="Member id."),
                        Field(
                            "group_instance_id",
                            "string",
                            "4+",
                            nullable="4+",
                            default=None,
                            ignorable=True,
                            help="Name of a static member, or null.",
                        ),
                        Field("client_id", "string", help="Client id of the member."),
                        Field("client_host", "string", help="Address it connects from."),
                        Field("member_metadata", "bytes", help="Data that it sent for the chosen assignor."),
                        Field("member_assignment", "bytes", help="Its assignment."),
                    ],
                ),
                Field(
                    "authorized_operations",
                    "int32",
                    "3+",
                    default=-0x80000000,
                    help="Bit field of the operations allowed on it; the default if not requested.",
                ),
            ],
        ),
    ],
)
