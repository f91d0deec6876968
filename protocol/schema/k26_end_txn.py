"""EndTxn (26): commit or abort a transaction.

2: PRODUCER_FENCED. 3: flexible. 4: TRANSACTION_ABORTABLE (KIP-890). 5: the epoch is bumped with every transaction, and
the response has the producer id and epoch of the next one.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "EndTxnRequest",
    api_key=26,
    versions="0-5",
    flexible="3+",
    fields=[
        Field("transactional_id", "string", help="Transactional id."),
        Field("producer_id", "int64", help="Producer id of the transaction."),
        Field("producer_epoch", "int16", help="Its producer epoch."),
        Field("committed", "bool", help="True to commit, false to abort."),
    ],
)

RESPONSE = Message(
    "EndTxnResponse",
    api_key=26,
    versions="0-5",
    flexible="3+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field(
            "producer_id",
            "int64",
            "5+",
            default=-1,
            ignorable=True,
            help="Producer id of the next transaction, -1 after an error.",
        ),
        Field(
            "producer_epoch",
            "int16",
            "5+",
            default=-1,
            ignorable=True,
            help="Producer epoch of the next transaction, -1 after an error.",
        ),
    ],
)
