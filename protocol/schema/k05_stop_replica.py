"""StopReplica (5): the controller stops replicas of a broker.

As Apache Kafka 3.9 has it, the last release with ZooKeeper. 1: the broker's epoch, partitions by topic. 2: flexible.
3: of each partition its leader epoch, and whether it is deleted (KIP-570). 4: KRaft controllers during a migration
(KIP-866).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "StopReplicaRequest",
    api_key=5,
    versions="0-4",
    flexible="2+",
    fields=[
        Field("controller_id", "int32", help="Broker id of the controller."),
        Field("is_kraft_controller", "bool", "4+", help="Whether a KRaft controller sends this during a migration."),
        Field("controller_epoch", "int32", help="Epoch of the controller that decided this."),
        Field(
            "broker_epoch",
            "int64",
            "1+",
            default=-1,
            ignorable=True,
            help="Epoch of the broker that this is meant for, -1 for any.",
        ),
        Field("delete_partitions", "bool", "0-2", help="Whether the logs are deleted, too."),
        Field(
            "ungrouped_partitions",
            "[]StopReplicaPartitionV0",
            "0",
            help="Partitions, each with its topic.",
            fields=[
                Field("topic_name", "string", "0", help="Topic name."),
                Field("partition_index", "int32", "0", help="Partition number."),
            ],
        ),
        Field(
            "topics",
            "[]StopReplicaTopicV1",
            "1-2",
            help="Topics.",
            fields=[
                Field("name", "string", "1-2", help="Topic name."),
                Field("partition_indexes", "[]int32", "1-2", help="Partition numbers."),
            ],
        ),
        Field(
            "topic_states",
            "[]StopReplicaTopicState",
            "3+",
            help="Topics.",
            fields=[
                Field("topic_name", "string", "3+", help="Topic name."),
                Field(
                    "partition_states",
                    "[]StopReplicaPartitionState",
                    "3+",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", "3+", help="Partition number."),
                        Field(
                            "leader_epoch",
                            "int32",
                            "3+",
                            default=-1,
                            help="Epoch that ends with this; -1 unchecked, -2 when the topic is deleted.",
                        ),
                        Field("delete_partition", "bool", "3+", help="Whether the log is deleted, too."),
                    ],
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "StopReplicaResponse",
    api_key=5,
    versions="0-4",
    flexible="2+",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field(
            "partition_errors",
            "[]StopReplicaPartitionError",
            help="Partitions.",
            fields=[
                Field("topic_name", "string", help="Topic name."),
                Field("partition_index", "int32", help="Partition number."),
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
            ],
        ),
    ],
)
