"""AlterPartition (56): a leader requests a change of the in-sync set of its partitions (KIP-497).

1: recovery from an unclean election (KIP-704). 2: topic ids for names, and errors about replicas (KIP-841). 3: the
epochs of the brokers in the new set (KIP-903).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "AlterPartitionRequest",
    api_key=56,
    versions="0-3",
    flexible="0+",
    fields=[
        Field("broker_id", "int32", help="The leader."),
        Field("broker_epoch", "int64", default=-1, help="Its epoch, -1 when unknown."),
        Field(
            "topics",
            "[]TopicData",
            help="Topics.",
            fields=[
                Field("topic_name", "string", "0-1", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "2+", ignorable=True, help="Topic id."),
                Field(
                    "partitions",
                    "[]PartitionData",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("leader_epoch", "int32", help="Epoch in which the broker leads it."),
                        Field("new_isr", "[]int32", "0-2", help="The new in-sync set."),
                        Field(
                            "new_isr_with_epochs",
                            "[]BrokerState",
                            "3+",
                            help="The new in-sync set.",
                            fields=[
                                Field("broker_id", "int32", "3+", help="Broker id."),
                                Field(
                                    "broker_epoch",
                                    "int64",
                                    "3+",
                                    default=-1,
                                    help="The broker's epoch in its fetches, -1 for no check.",
                                ),
                            ],
                        ),
                        Field(
                            "leader_recovery_state",
                            "int8",
                            "1+",
                            default=0,
                            help="1 while the leader recovers from an unclean election, else 0.",
                        ),
                        Field("partition_epoch", "int32", help="Version of the state that is to be changed."),
                    ],
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "AlterPartitionResponse",
    api_key=56,
    versions="0-3",
    flexible="0+",
    fields=[
        Field("throttle_time_ms", "int32", help="Always 0 between brokers."),
        Field("error_code", "int16", help="An ErrorCode about the whole request; 0 when all went well."),
        Field(
            "topics",
            "[]TopicData",
            help="Topics.",
            fields=[
                Field("topic_name", "string", "0-1", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "2+", ignorable=True, help="Topic id."),
                Field(
                    "partitions",
                    "[]PartitionData",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 when the change was made."),
                        Field("leader_id", "int32", help="Broker id of the leader."),
                        Field("leader_epoch", "int32", help="Epoch of that leadership."),
                        Field("isr", "[]int32", help="The in-sync set as it is now."),
                        Field(
                            "leader_recovery_state",
                            "int8",
                            "1+",
                            default=0,
                            ignorable=True,
                            help="1 while the leader recovers from an unclean election, else 0.",
                        ),
                        Field("partition_epoch", "int32", help="Version of the state as it is now."),
                    ],
                ),
            ],
        ),
    ],
)
