"""Metadata (3): brokers, the controller, and the leaders of the partitions of the requested topics.

1: null requests all topics (in 0 an empty list does), controller, racks. 2: cluster id. 4: auto-creation can be
declined. 5: offline replicas. 7: leader epochs. 8: authorized operations. 9: flexible. 10: topic ids. 12: requests by
topic id. 13: an error of the whole response (KIP-1102).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "MetadataRequest",
    api_key=3,
    versions="0-13",
    flexible="9+",
    fields=[
        Field(
            "topics",
            "[]MetadataRequestTopic",
            nullable="1+",
            help="Topics to describe, null for all.",
            fields=[
                Field("topic_id", "uuid", "10+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field("name", "string", nullable="10+", help="Topic name, null if the request names it by id."),
            ],
        ),
        Field(
            "allow_auto_topic_creation",
            "bool",
            "4+",
            default=True,
            help="Whether a missing topic may be created, if the broker does so at all.",
        ),
        Field(
            "include_cluster_authorized_operations",
            "bool",
            "8-10",
            help="Whether the response includes the operations allowed on the cluster.",
        ),
        Field(
            "include_topic_authorized_operations",
            "bool",
            "8+",
            help="Whether the response includes the operations allowed on each topic.",
        ),
    ],
)

RESPONSE = Message(
    "MetadataResponse",
    api_key=3,
    versions="0-13",
    flexible="9+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            "3+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "brokers",
            "[]MetadataResponseBroker",
            help="The live brokers.",
            fields=[
                Field("node_id", "int32", help="Broker id."),
                Field("host", "string", help="Host name to connect to."),
                Field("port", "int32", help="TCP port."),
                Field(
                    "rack",
                    "string",
                    "1+",
                    nullable="1+",
                    default=None,
                    ignorable=True,
                    help="Rack of the broker, or null.",
                ),
            ],
        ),
        Field("cluster_id", "string", "2+", nullable="2+", default=None, ignorable=True, help="Id of the cluster."),
        Field(
            "controller_id",
            "int32",
            "1+",
            default=-1,
            ignorable=True,
            help="Broker id of the controller, -1 when there is none.",
        ),
        Field(
            "topics",
            "[]MetadataResponseTopic",
            help="Topics.",
            fields=[
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("name", "string", nullable="12+", help="Topic name, null for an unknown id."),
                Field("topic_id", "uuid", "10+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field(
                    "is_internal",
                    "bool",
                    "1+",
                    ignorable=True,
                    help="Whether the topic is one of the broker itself.",
                ),
                Field(
                    "partitions",
                    "[]MetadataResponsePartition",
                    help="Partitions.",
                    fields=[
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                        Field("partition_index", "int32", help="Partition number."),
                        Field("leader_id", "int32", help="Broker id of the leader, -1 when unknown."),
                        Field(
                            "leader_epoch",
                            "int32",
                            "7+",
                            default=-1,
                            ignorable=True,
                            help="Epoch of that leadership, -1 when unknown.",
                        ),
                        Field(
                            "replica_nodes",
                            "[]int32",
                            help="Broker ids of all replicas, the preferred leader first.",
                        ),
                        Field("isr_nodes", "[]int32", help="Broker ids of the in-sync replicas."),
                        Field(
                            "offline_replicas",
                            "[]int32",
                            "5+",
                            ignorable=True,
                            help="Broker ids of the replicas that are not alive.",
                        ),
                    ],
                ),
                Field(
                    "topic_authorized_operations",
                    "int32",
                    "8+",
                    default=-0x80000000,
                    help="Bit field of the operations allowed on the topic; the default if not requested.",
                ),
            ],
        ),
        Field(
            "cluster_authorized_operations",
            "int32",
            "8-10",
            default=-0x80000000,
            help="Bit field of the operations allowed on the cluster; the default if not requested.",
        ),
        Field("error_code", "int16", "13+", ignorable=True, help="An ErrorCode; 0 for success."),
    ],
)
