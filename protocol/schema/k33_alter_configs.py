"""AlterConfigs (33): replace all settings of a resource; those without a value return to their defaults.

2: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "AlterConfigsRequest",
    api_key=33,
    versions="0-2",
    flexible="2+",
    fields=[
        Field(
            "resources",
            "[]AlterConfigsResource",
            help="Resources to change.",
            fields=[
                Field("resource_type", "int8", help="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."),
                Field("resource_name", "string", help="Topic, broker id or group."),
                Field(
                    "configs",
                    "[]AlterableConfig",
                    help="All settings of the resource after the change.",
                    fields=[
                        Field("name", "string", help="Setting."),
                        Field("value", "string", nullable="0+", help="Its value."),
                    ],
                ),
            ],
        ),
        Field("validate_only", "bool", help="Check, but change nothing."),
    ],
)

RESPONSE = Message(
    "AlterConfigsResponse",
    api_key=33,
    versions="0-2",
    flexible="2+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "responses",
            "[]AlterConfigsResourceResponse",
            help="One entry for each resource.",
            fields=[
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("error_message", "string", nullable="0+", help="Error message, or null."),
                Field("resource_type", "int8", help="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."),
                Field("resource_name", "string", help="Topic, broker id or group."),
            ],
        ),
    ],
)
