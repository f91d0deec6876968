"""ControlledShutdown (7): a broker that is about to stop requests the move of its leaderships.

0: its request header has no client id. 1: an ordinary one. 2: the broker's epoch. 3: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ControlledShutdownRequest",
    api_key=7,
    versions="0-3",
    flexible="3+",
    fields=[
        Field("broker_id", "int32", help="Broker that is about to stop."),
        Field("broker_epoch", "int64", "2+", default=-1, ignorable=True, help="Its epoch, -1 when unknown."),
    ],
)

RESPONSE = Message(
    "ControlledShutdownResponse",
    api_key=7,
    versions="0-3",
    flexible="3+",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field(
            "remaining_partitions",
            "[]RemainingPartition",
            help="Partitions that the broker still leads because they have no other in-sync replica.",
            fields=[
                Field("topic_name", "string", help="Topic name."),
                Field("partition_index", "int32", help="Partition number."),
            ],
        ),
    ],
)
