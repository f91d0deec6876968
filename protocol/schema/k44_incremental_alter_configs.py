"""IncrementalAlterConfigs (44): change single settings (KIP-339).

1: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "IncrementalAlterConfigsRequest",
    api_key=44,
    versions="0-1",
    flexible="1+",
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
                    help="Settings to change.",
                    fields=[
                        Field("name", "string", help="Setting."),
                        Field("config_operation", "int8", help="0 set, 1 delete, 2 append, 3 subtract."),
                        Field(
                            "value",
                            "string",
                            nullable="0+",
                            help="Value to set, append or subtract; null to delete.",
                        ),
                    ],
                ),
            ],
        ),
        Field("validate_only", "bool", help="Check, but change nothing."),
    ],
)

RESPONSE = Message(
    "IncrementalAlterConfigsResponse",
    api_key=44,
    versions="0-1",
    flexible="1+",
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
