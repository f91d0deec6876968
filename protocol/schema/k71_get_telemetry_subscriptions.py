"""GetTelemetrySubscriptions (71): which metrics a client is to send, and how often (KIP-714)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "GetTelemetrySubscriptionsRequest",
    api_key=71,
    versions="0",
    flexible="0+",
    fields=[
        Field("client_instance_id", "uuid", help="Id of the client instance; zero in its first request."),
    ],
)

RESPONSE = Message(
    "GetTelemetrySubscriptionsResponse",
    api_key=71,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("client_instance_id", "uuid", help="Id of the client instance, a new one if the request had none."),
        Field("subscription_id", "int32", help="Stands for the present set of metrics and the interval."),
        Field("accepted_compression_types", "[]int8", help="Codecs in the order of preference."),
        Field("push_interval_ms", "int32", help="Milliseconds between two pushes."),
        Field("telemetry_max_bytes", "int32", help="Bytes of metrics in a push, at most."),
        Field("delta_temporality", "bool", help="Whether counters are sent as differences to the push before."),
        Field(
            "requested_metrics", "[]string", help="Prefixes of the names of metrics; empty for none, * alone for all."
        ),
    ],
)
