"""PushTelemetry (72): metrics of a client (KIP-714)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "PushTelemetryRequest",
    api_key=72,
    versions="0",
    flexible="0+",
    fields=[
        Field("client_instance_id", "uuid", help="Id of the client instance."),
        Field("subscription_id", "int32", help="Subscription id that the broker has sent."),
        Field("terminating", "bool", help="Whether this is the last push of the client."),
        Field("compression_type", "int8", help="Codec of the metrics."),
        Field("metrics", "bytes", help="MetricsData of OpenTelemetry (opentelemetry.proto.metrics.v1), compressed."),
    ],
)

RESPONSE = Message(
    "PushTelemetryResponse",
    api_key=72,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
    ],
)
