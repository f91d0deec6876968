"""DescribeTransactions (65): transactional ids, as their coordinator knows them (KIP-664)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeTransactionsRequest",
    api_key=65,
    versions="0",
    flexible="0+",
    fields=[
        Field("transactional_ids", "[]string", help="Transactional ids to describe."),
    ],
)

RESPONSE = Message(
    "DescribeTransactionsResponse",
    api_key=65,
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "transaction_states",
            "[]TransactionState",
            help="Transactional ids.",
            fields=[
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("transactional_id", "string", help="Transactional id."),
                Field("transaction_state", "string", help="State of its transaction."),
                Field("transaction_timeout_ms", "int32", help="Age at which the coordinator aborts a transaction."),
                Field(
                    "transaction_start_time_ms",
                    "int64",
                    help="When the transaction began, in milliseconds; -1 if none is open, 0 with an error.",
                ),
                Field("producer_id", "int64", help="Producer id."),
                Field("producer_epoch", "int16", help="Producer epoch."),
                Field(
                    "topics",
                    "[]TopicData",
                    help="Partitions of the transaction; once it ends, those that have no marker yet.",
                    fields=[
                        Field("topic", "string", help="Topic name."),
                        Field("partitions", "[]int32", help="Partition numbers."),
                    ],
                ),
            ],
        ),
    ],
)
