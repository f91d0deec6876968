"""DeleteRecords (21): increase the log start offset of partitions, which deletes older records.

2: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DeleteRecordsRequest",
    api_key=21,
    versions="0-2",
    flexible="2+",
    fields=[
        Field(
            "topics",
            "[]DeleteRecordsTopic",
            help="Topics of the partitions.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]DeleteRecordsPartition",
                    help="Partitions whose first records are deleted.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("offset", "int64", help="First offset to keep, -1 for the high watermark."),
                    ],
                ),
            ],
        ),
        Field("timeout_ms", "int32", help="Time after which the broker responds with a timeout."),
    ],
)

RESPONSE = Message(
    "DeleteRecordsResponse",
    api_key=21,
    versions="0-2",
    flexible="2+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "topics",
            "[]DeleteRecordsTopicResult",
            help="Topics.",
            fields=[
                Field("name", "string", help="Topic name."),
                Field(
                    "partitions",
                    "[]DeleteRecordsPartitionResult",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("low_watermark", "int64", help="First offset that any replica still has, -1 on failure."),
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                    ],
                ),
            ],
        ),
    ],
)
