"""AddPartitionsToTxn (24): register partitions with the transaction that will write to them.

0-3: a producer of the old transaction protocol, about its one transaction. 2: PRODUCER_FENCED. 3: flexible. 4: a
partition leader, about many transactions, to add or only to verify partitions (KIP-890). 5: TRANSACTION_ABORTABLE.
"""

from gregor.protocol.codec.model import Field, Message, Struct

REQUEST = Message(
    "AddPartitionsToTxnRequest",
    api_key=24,
    versions="0-5",
    flexible="3+",
    fields=[
        Field(
            "transactions",
            "[]AddPartitionsToTxnTransaction",
            "4+",
            help="Transactions.",
            fields=[
                Field("transactional_id", "string", "4+", help="Transactional id."),
                Field("producer_id", "int64", "4+", help="Producer id of the transaction."),
                Field("producer_epoch", "int16", "4+", help="Its producer epoch."),
                Field(
                    "verify_only",
                    "bool",
                    "4+",
                    help="Answer whether the partitions are part of the transaction; add none.",
                ),
                Field("topics", "[]AddPartitionsToTxnTopic", "4+", help="Partitions to add or to verify."),
            ],
        ),
        Field("v3_and_below_transactional_id", "string", "0-3", help="Transactional id."),
        Field("v3_and_below_producer_id", "int64", "0-3", help="Producer id of the transaction."),
        Field("v3_and_below_producer_epoch", "int16", "0-3", help="Its producer epoch."),
        Field("v3_and_below_topics", "[]AddPartitionsToTxnTopic", "0-3", help="Partitions to add."),
    ],
    structs=[
        Struct(
            "AddPartitionsToTxnTopic",
            [
                Field("name", "string", help="Topic name."),
                Field("partitions", "[]int32", help="Partition numbers."),
            ],
        ),
    ],
)

RESPONSE = Message(
    "AddPartitionsToTxnResponse",
    api_key=24,
    versions="0-5",
    flexible="3+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", "4+", ignorable=True, help="An ErrorCode for the whole request; 0 for success."),
        Field(
            "results_by_transaction",
            "[]AddPartitionsToTxnResult",
            "4+",
            help="Results, one for each transaction.",
            fields=[
                Field("transactional_id", "string", "4+", help="Transactional id."),
                Field("topic_results", "[]AddPartitionsToTxnTopicResult", "4+", help="Results by topic."),
            ],
        ),
        Field("results_by_topic_v3_and_below", "[]AddPartitionsToTxnTopicResult", "0-3", help="Results by topic."),
    ],
    structs=[
        Struct(
            "AddPartitionsToTxnPartitionResult",
            [
                Field("partition_index", "int32", help="Partition number."),
                Field("partition_error_code", "int16", help="An ErrorCode; 0 for success."),
            ],
        ),
        Struct(
            "AddPartitionsToTxnTopicResult",
            [
                Field("name", "string", help="Topic name."),
                Field("results_by_partition", "[]AddPartitionsToTxnPartitionResult", help="Results by partition."),
            ],
        ),
    ],
)
