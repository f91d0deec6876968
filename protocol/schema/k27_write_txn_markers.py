"""WriteTxnMarkers (27): a transaction coordinator has the leaders of partitions write the end of transactions.

1: flexible. 2: the transaction version, by which leaders check epochs (KIP-1228).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "WriteTxnMarkersRequest",
    api_key=27,
    versions="0-2",
    flexible="1+",
    fields=[
        Field(
            "markers",
            "[]WritableTxnMarker",
            help="Markers.",
            fields=[
                Field("producer_id", "int64", help="Producer id of the transaction."),
                Field("producer_epoch", "int16", help="Its producer epoch."),
                Field("transaction_result", "bool", help="True for a commit, false for an abort."),
                Field(
                    "topics",
                    "[]WritableTxnMarkerTopic",
                    help="Topics.",
                    fields=[
                        Field("name", "string", help="Topic name."),
                        Field("partition_indexes", "[]int32", help="Partitions in which the marker is written."),
                    ],
                ),
                Field(
                    "coordinator_epoch",
                    "int32",
                    help="Leader epoch of the coordinator's partition of __transaction_state.",
                ),
                Field(
                    "transaction_version",
                    "int8",
                    "2+",
                    ignorable=True,
                    help="Transaction version of the marker: 0 and 1 the old protocol, 2 that of KIP-890.",
                ),
            ],
        ),
    ],
)

RESPONSE = Message(
    "WriteTxnMarkersResponse",
    api_key=27,
    versions="0-2",
    flexible="1+",
    fields=[
        Field(
            "markers",
            "[]WritableTxnMarkerResult",
            help="Results, one for each marker.",
            fields=[
                Field("producer_id", "int64", help="Producer id of the transaction."),
                Field(
                    "topics",
                    "[]WritableTxnMarkerTopicResult",
                    help="Topics.",
                    fields=[
                        Field("name", "string", help="Topic name."),
                        Field(
                            "partitions",
                            "[]WritableTxnMarkerPartitionResult",
                            help="Partitions.",
                            fields=[
                                Field("partition_index", "int32", help="Partition number."),
                                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                            ],
                        ),
                    ],
                ),
            ],
        ),
    ],
)
