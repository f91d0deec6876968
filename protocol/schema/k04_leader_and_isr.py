"""LeaderAndIsr (4): the controller assigns partitions to a broker, as leader or follower.

As Apache Kafka 3.9 has it, the last release with ZooKeeper. 1: whether a replica is new. 2: the broker's epoch,
partitions by topic. 3: replicas that a reassignment adds and removes. 4: flexible. 5: topic ids, in the response
instead of names. 6: recovery from an unclean election (KIP-704). 7: KRaft controllers during a migration (KIP-866).
"""

from gregor.protocol.codec.model import Field, Message, Struct

REQUEST = Message(
    "LeaderAndIsrRequest",
    api_key=4,
    versions="0-7",
    flexible="4+",
    fields=[
        Field("controller_id", "int32", help="Broker id of the controller."),
        Field("is_kraft_controller", "bool", "7+", help="Whether a KRaft controller sends this during a migration."),
        Field("controller_epoch", "int32", help="Epoch of the controller that decided this."),
        Field(
            "broker_epoch",
            "int64",
            "2+",
            default=-1,
            ignorable=True,
            help="Epoch of the broker that this is meant for, -1 for any.",
        ),
        Field("type", "int8", "5+", help="1 some partitions, 2 all that the broker should have, 0 unknown."),
        Field(
            "ungrouped_partition_states", "[]LeaderAndIsrPartitionState", "0-1", help="Partitions, each with its topic."
        ),
        Field(
            "topic_states",
            "[]LeaderAndIsrTopicState",
            "2+",
            help="Topics.",
            fields=[
                Field("topic_name", "string", "2+", help="Topic name."),
                Field("topic_id", "uuid", "5+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field(
                    "partition_states",
                    "[]LeaderAndIsrPartitionState",
                    "2+",
                    help="Partitions.",
                ),
            ],
        ),
        Field(
            "live_leaders",
            "[]LeaderAndIsrLiveLeader",
            help="Addresses of the leaders named above.",
            fields=[
                Field("broker_id", "int32", help="Broker id."),
                Field("host_name", "string", help="Host name to connect to."),
                Field("port", "int32", help="TCP port."),
            ],
        ),
    ],
    structs=[
        Struct(
            "LeaderAndIsrPartitionState",
            [
                Field("topic_name", "string", "0-1", ignorable=True, help="Topic name."),
                Field("partition_index", "int32", help="Partition number."),
                Field("controller_epoch", "int32", help="Epoch of the controller that decided this."),
                Field("leader", "int32", help="Broker id of the leader, -1 for none."),
                Field("leader_epoch", "int32", help="Epoch of that leadership, -1 when unknown."),
                Field("isr", "[]int32", help="Broker ids of the in-sync replicas."),
                Field(
                    "partition_epoch",
                    "int32",
                    help="Version of the partition state; in ZooKeeper, of its node.",
                ),
                Field("replicas", "[]int32", help="Broker ids of all replicas, the preferred leader first."),
                Field(
                    "adding_replicas",
                    "[]int32",
                    "3+",
                    ignorable=True,
                    help="Broker ids that a running reassignment adds.",
                ),
                Field(
                    "removing_replicas",
                    "[]int32",
                    "3+",
                    ignorable=True,
                    help="Broker ids that a running reassignment removes.",
                ),
                Field(
                    "is_new",
                    "bool",
                    "1+",
                    ignorable=True,
                    help="Whether the replica need not exist on the broker yet.",
                ),
                Field(
                    "leader_recovery_state",
                    "int8",
                    "6+",
                    help="1 while the leader recovers from an unclean election, else 0.",
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "LeaderAndIsrResponse",
    api_key=4,
    versions="0-7",
    flexible="4+",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("partition_errors", "[]LeaderAndIsrPartitionError", "0-4", help="Partitions, each with its topic."),
        Field(
            "topics",
            "[]LeaderAndIsrTopicError",
            "5+",
            help="Topics.",
            fields=[
                Field("topic_id", "uuid", "5+", help="Topic id; all zeros if unknown."),
                Field("partition_errors", "[]LeaderAndIsrPartitionError", "5+", help="Partitions."),
            ],
        ),
    ],
    structs=[
        Struct(
            "LeaderAndIsrPartitionError",
            [
                Field("topic_name", "string", "0-4", ignorable=True, help="Topic name."),
                Field("partition_index", "int32", help="Partition number."),
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
            ],
        ),
    ],
)
