"""AlterReplicaLogDirs (34): move partitions of one broker to another of its data folders (KIP-113).

2: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "AlterReplicaLogDirsRequest",
    api_key=34,
    versions="0-2",
    flexible="2+",
    fields=[
        Field(
            "dirs",
            "[]AlterReplicaLogDir",
            help="Data folders to move to.",
            fields=[
                Field("path", "string", help="Absolute path of the data folder."),
                Field(
                    "topics",
                    "[]AlterReplicaLogDirTopic",
                    help="Topics to move there.",
                    fields=[
                        Field("name", "string", help="Topic name."),
                        Field("partitions", "[]int32", help="Partition numbers."),
                    ],
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "AlterReplicaLogDirsResponse",
    api_key=34,
    versions="0-2",
    flexible="2+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "results",
            "[]AlterReplicaLogDirTopicResult",
            help="Topics.",
            fields=[
                Field("topic_name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]AlterReplicaLogDirPartitionResult",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 when the move has begun."),
                    ],
                ),
            ],
        ),
    ],
)
