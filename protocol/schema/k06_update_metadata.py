"""UpdateMetadata (6): the controller sends the live brokers and the leaders to every broker.

As Apache Kafka 3.9 has it, the last release with ZooKeeper. 1: several endpoints of a broker. 2: racks. 3: names of
listeners. 4: offline replicas. 5: the broker's epoch, partitions by topic. 6: flexible. 7: topic ids. 8: KRaft
controllers during a migration (KIP-866).
"""

from gregor.protocol.codec.model import Field, Message, Struct

REQUEST = Message(
    "UpdateMetadataRequest",
    api_key=6,
    versions="0-8",
    flexible="6+",
    fields=[
        Field("controller_id", "int32", help="Broker id of the controller."),
        Field("is_kraft_controller", "bool", "8+", help="Whether a KRaft controller sends this during a migration."),
        Field("type", "int8", "8+", tag=0, help="0 unknown, 1 changes only, 2 everything; for migrations."),
        Field("controller_epoch", "int32", help="Epoch of the controller that decided this."),
        Field(
            "broker_epoch",
            "int64",
            "5+",
            default=-1,
            ignorable=True,
            help="Epoch of the broker that this is meant for, -1 for any.",
        ),
        Field(
            "ungrouped_partition_states",
            "[]UpdateMetadataPartitionState",
            "0-4",
            help="Partitions, each with its topic.",
        ),
        Field(
            "topic_states",
            "[]UpdateMetadataTopicState",
            "5+",
            help="Topics.",
            fields=[
                Field("topic_name", "string", "5+", help="Topic name."),
                Field("topic_id", "uuid", "7+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field(
                    "partition_states",
                    "[]UpdateMetadataPartitionState",
                    "5+",
                    help="Partitions.",
                ),
            ],
        ),
        Field(
            "live_brokers",
            "[]UpdateMetadataBroker",
            help="All live brokers.",
            fields=[
                Field("id", "int32", help="Broker id."),
                Field("v0_host", "string", "0", ignorable=True, help="Host name to connect to."),
                Field("v0_port", "int32", "0", ignorable=True, help="TCP port."),
                Field(
                    "endpoints",
                    "[]UpdateMetadataEndpoint",
                    "1+",
                    ignorable=True,
                    help="The listeners of the broker.",
                    fields=[
                        Field("port", "int32", "1+", help="TCP port."),
                        Field("host", "string", "1+", help="Host name to connect to."),
                        Field("listener", "string", "3+", ignorable=True, help="Listener name."),
                        Field(
                            "security_protocol",
                            "int16",
                            "1+",
                            help="0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.",
                        ),
                    ],
                ),
                Field("rack", "string", "2+", nullable="0+", ignorable=True, help="Rack of the broker, or null."),
            ],
        ),
    ],
    structs=[
        Struct(
            "UpdateMetadataPartitionState",
            [
                Field("topic_name", "string", "0-4", ignorable=True, help="Topic name."),
                Field("partition_index", "int32", help="Partition number."),
                Field("controller_epoch", "int32", help="Epoch of the controller that decided this."),
                Field(
                    "leader",
                    "int32",
                    help="Broker id of the leader, -1 for none, -2 while the topic is deleted.",
                ),
                Field("leader_epoch", "int32", help="Epoch of that leadership, -1 when unknown."),
                Field("isr", "[]int32", help="Broker ids of the in-sync replicas."),
                Field("zk_version", "int32", help="Version of the partition's node in ZooKeeper."),
                Field("replicas", "[]int32", help="Broker ids of all replicas, the preferred leader first."),
                Field(
                    "offline_replicas",
                    "[]int32",
                    "4+",
                    ignorable=True,
                    help="Broker ids of the replicas that are not alive.",
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "UpdateMetadataResponse",
    api_key=6,
    versions="0-8",
    flexible="6+",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
    ],
)
