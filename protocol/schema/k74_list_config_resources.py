"""ListConfigResources (74): the names of resources with settings.

0: only client metrics subscriptions, and called ListClientMetricsResources until 4.0 (KIP-714). 1: any type of
resource (KIP-1142).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ListConfigResourcesRequest",
    api_key=74,
    versions="0-1",
    flexible="0+",
    fields=[
        Field(
            "resource_types",
            "[]int8",
            "1+",
            help="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group; empty for all.",
        ),
    ],
)

RESPONSE = Message(
    "ListConfigResourcesResponse",
    api_key=74,
    versions="0-1",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field(
            "config_resources",
            "[]ConfigResource",
            help="Resources.",
            fields=[
                Field("resource_name", "string", help="Topic, broker id, group or subscription."),
                Field(
                    "resource_type",
                    "int8",
                    "1+",
                    default=16,
                    ignorable=True,
                    help="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.",
                ),
            ],
        ),
    ],
)
