"""ApiVersions (18): the requests and versions that a broker serves, and its feature levels.

1: throttle time. 3: flexible, the client names itself (KIP-511), features (KIP-584). 4: features whose lowest version
is 0 are listed too. 5 (Kafka 4.4): the client names the cluster and broker that it expects, if it knows them
(KIP-1242). The response header always has version 0.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ApiVersionsRequest",
    api_key=18,
    versions="0-5",
    flexible="3+",
    fields=[
        Field("client_software_name", "string", "3+", ignorable=True, help="Client library."),
        Field("client_software_version", "string", "3+", ignorable=True, help="Its version."),
        Field(
            "cluster_id",
            "string",
            "5+",
            nullable="5+",
            default=None,
            ignorable=True,
            help="Cluster that the client expects, or null when it knows none.",
        ),
        Field("node_id", "int32", "5+", default=-1, ignorable=True, help="Broker that the client expects there."),
    ],
)

RESPONSE = Message(
    "ApiVersionsResponse",
    api_key=18,
    versions="0-5",
    flexible="3+",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field(
            "api_keys",
            "[]ApiVersion",
            help="The APIs served.",
            fields=[
                Field("api_key", "int16", help="API, see ApiKey."),
                Field("min_version", "int16", help="Oldest version served."),
                Field("max_version", "int16", help="Newest version served."),
            ],
        ),
        Field(
            "throttle_time_ms",
            "int32",
            "1+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "supported_features",
            "[]SupportedFeatureKey",
            "3+",
            tag=0,
            ignorable=True,
            help="Feature levels that this broker can run at.",
            fields=[
                Field("name", "string", "3+", help="Feature name."),
                Field("min_version", "int16", "3+", help="Lowest level."),
                Field("max_version", "int16", "3+", help="Highest level."),
            ],
        ),
        Field(
            "finalized_features_epoch",
            "int64",
            "3+",
            default=-1,
            tag=1,
            ignorable=True,
            help="Grows with each change of the levels in force, -1 when unknown.",
        ),
        Field(
            "finalized_features",
            "[]FinalizedFeatureKey",
            "3+",
            tag=2,
            ignorable=True,
            help="Feature levels in force in the cluster; only read when the epoch is known.",
            fields=[
                Field("name", "string", "3+", help="Feature name."),
                Field("max_version_level", "int16", "3+", help="Highest level in force."),
                Field("min_version_level", "int16", "3+", help="Lowest level in force."),
            ],
        ),
        Field(
            "zk_migration_ready",
            "bool",
            "3+",
            tag=3,
            ignorable=True,
            help="A KRaft controller is ready for a migration from ZooKeeper.",
        ),
    ],
)
