"""DescribeClientQuotas (48): the quotas of users, client ids and addresses that match a filter (KIP-546).

1: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeClientQuotasRequest",
    api_key=48,
    versions="0-1",
    flexible="1+",
    fields=[
        Field(
            "components",
            "[]ComponentData",
            help="Filters; an entity must match all of them.",
            fields=[
                Field("entity_type", "string", help="user, client-id or ip."),
                Field("match_type", "int8", help="0 this name, 1 the default, 2 any name."),
                Field("match", "string", nullable="0+", help="The name to match; null for the other match types."),
            ],
        ),
        Field("strict", "bool", help="Leave out entities that have a type which no filter names."),
    ],
)

RESPONSE = Message(
    "DescribeClientQuotasResponse",
    api_key=48,
    versions="0-1",
    flexible="1+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("error_message", "string", nullable="0+", help="Error message, or null."),
        Field(
            "entries",
            "[]EntryData",
            nullable="0+",
            help="One entry for each entity that matches; null beside an error.",
            fields=[
                Field(
                    "entity",
                    "[]EntityData",
                    help="The parts of the entity.",
                    fields=[
                        Field("entity_type", "string", help="user, client-id or ip."),
                        Field("entity_name", "string", nullable="0+", help="Name, or null for the default."),
                    ],
                ),
                Field(
                    "values",
                    "[]ValueData",
                    help="The quotas of the entity.",
                    fields=[
                        Field("key", "string", help="Quota, such as producer_byte_rate."),
                        Field("value", "float64", help="Its limit."),
                    ],
                ),
            ],
        ),
    ],
)
