"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses (KIP-546).

1: flexible.
"""

from gregor.protocol.codec.model import Field, Message

_ENTITY = [
    Field("entity_type", "string", help="user, client-id or ip."),
    Field("entity_name", "string", nullable="0+", help="Name, or null for the default."),
]

REQUEST = Message(
    "AlterClientQuotasRequest",
    api_key=49,
    versions="0-1",
    flexible="1+",
    fields=[
        Field(
            "entries",
            "[]EntryData",
            help="Entities to change.",
            fields=[
                Field("entity", "[]EntityData", help="The parts of the entity.", fields=_ENTITY),
                Field(
                    "ops",
                    "[]OpData",
                    help="Changes of its quotas.",
                    fields=[
                        Field("key", "string", help="Quota, such as producer_byte_rate."),
                        Field("value", "float64", help="Its new limit; without effect where it is removed."),
                        Field("remove", "bool", help="Remove the quota."),
                    ],
                ),
            ],
        ),
        Field("validate_only", "bool", help="Check, but change nothing."),
    ],
)

RESPONSE = Message(
    "AlterClientQuotasResponse",
    api_key=49,
    versions="0-1",
    flexible="1+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "entries",
            "[]EntryData",
            help="One entry for each entity.",
            fields=[
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("error_message", "string", nullable="0+", help="Error message, or null."),
                Field("entity", "[]EntityData", help="The parts of the entity.", fields=_ENTITY),
            ],
        ),
    ],
)
