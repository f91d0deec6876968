"""ListGroups (16): the groups that this broker coordinates.

3: flexible. 4: by state (KIP-518). 5: by type (KIP-848).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ListGroupsRequest",
    api_key=16,
    versions="0-5",
    flexible="3+",
    fields=[
        Field("states_filter", "[]string", "4+", help="Only groups in these states; all if empty."),
        Field("types_filter", "[]string", "5+", help="Only groups of these types; all if empty."),
    ],
)

RESPONSE = Message(
    "ListGroupsResponse",
    api_key=16,
    versions="0-5",
    flexible="3+",
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
            "groups",
            "[]ListedGroup",
            help="Groups.",
            fields=[
                Field("group_id", "string", help="Group."),
                Field("protocol_type", "string", help='Protocol type of the members, such as "consumer", or empty.'),
                Field("group_state", "string", "4+", ignorable=True, help="State of the group."),
                Field("group_type", "string", "5+", ignorable=True, help="Classic, consumer, share or streams."),
            ],
        ),
    ],
)
