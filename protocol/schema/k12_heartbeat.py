"""Heartbeat (12): a member is alive; the response shows whether the group rebalances.

3: static members (KIP-345). 4: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "HeartbeatRequest",
    api_key=12,
    versions="0-4",
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
    ],
)

RESPONSE = Message(
    "HeartbeatResponse",
    api_key=12,
    versions="0-4",
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
    ],
)
