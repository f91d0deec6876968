"""DescribeCluster (60): brokers and controller (KIP-700).

1: controllers as well as brokers (KIP-919). 2: fenced brokers (KIP-1073).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeClusterRequest",
    api_key=60,
    versions="0-2",
    flexible="0+",
    fields=[
        Field(
            "include_cluster_authorized_operations",
            "bool",
            help="Whether the response includes the operations allowed on the cluster.",
        ),
        Field("endpoint_type", "int8", "1+", default=1, help="1 brokers, 2 controllers."),
        Field("include_fenced_brokers", "bool", "2+", help="Whether to list brokers that are fenced."),
    ],
)

RESPONSE = Message(
    "DescribeClusterResponse",
    api_key=60,
    versions="0-2",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("error_message", "string", nullable="0+", default=None, help="Error message, or null."),
        Field("endpoint_type", "int8", "1+", default=1, help="1 brokers, 2 controllers."),
        Field("cluster_id", "string", help="Id of the cluster."),
        Field("controller_id", "int32", default=-1, help="Broker id of the controller, -1 when there is none."),
        Field(
            "brokers",
            "[]DescribeClusterBroker",
            help="Brokers.",
            fields=[
                Field("broker_id", "int32", help="Broker id."),
                Field("host", "string", help="Host name to connect to."),
                Field("port", "int32", help="TCP port."),
                Field("rack", "string", nullable="0+", default=None, help="Rack of the broker, or null."),
                Field("is_fenced", "bool", "2+", help="Registered, but out of service."),
            ],
        ),
        Field(
            "cluster_authorized_operations",
            "int32",
            default=-0x80000000,
            help="Bit field of the operations allowed on the cluster; the default if not requested.",
        ),
    ],
)
