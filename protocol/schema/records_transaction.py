"""Key and value of `__transaction_state`.

Each begins with an int16, its version, and the fields of that version follow. The version of a key is the kind of the
record: 0, a transactional id, is the only one. From version 1 of the value on, new fields are tagged, so that older
brokers can read them (KIP-915, KIP-890).
"""

from gregor.protocol.codec.model import Field, Message

TRANSACTION_LOG_KEY = Message(
    "TransactionLogKey",
    versions="0",
    fields=[
        Field("transactional_id", "string", help="Transactional id."),
    ],
)

TRANSACTION_LOG_VALUE = Message(
    "TransactionLogValue",
    versions="0-1",
    flexible="1+",
    fields=[
        Field("producer_id", "int64", help="Producer id."),
        Field(
            "previous_producer_id",
            "int64",
            "1+",
            tag=0,
            default=-1,
            help="Producer id of the last transaction of a client of version 2, -1 for none.",
        ),
        Field(
            "next_producer_id",
            "int64",
            "1+",
            tag=1,
            default=-1,
            help="Producer id of the next transaction where the epochs of this one are exhausted, -1 if they are not.",
        ),
        Field("producer_epoch", "int16", help="Producer epoch."),
        Field(
            "next_producer_epoch",
            "int16",
            "1+",
            tag=3,
            default=-1,
            help="Producer epoch that goes with `next_producer_id`, -1 for none.",
        ),
        Field("transaction_timeout_ms", "int32", help="Age at which the coordinator aborts a transaction."),
        Field("transaction_status", "int8", help="Number of the state."),
        Field(
            "transaction_partitions",
            "[]PartitionsSchema",
            nullable="0+",
            help="Partitions of the transaction, null in state Empty.",
            fields=[
                Field("topic", "string", help="Topic name."),
                Field("partition_ids", "[]int32", help="Partition numbers."),
            ],
        ),
        Field("transaction_last_update_timestamp_ms", "int64", help="Time of this change, in milliseconds."),
        Field(
            "transaction_start_timestamp_ms",
            "int64",
            help="When the transaction began, in milliseconds; -1 for none.",
        ),
        Field("client_transaction_version", "int16", "1+", tag=2, help="Transaction version of the client."),
    ],
)
