"""InitProducerId (22): an id and an epoch for an idempotent or transactional producer.

2: flexible. 3: a producer can request a new epoch of its id (KIP-360). 4: PRODUCER_FENCED. 5: TRANSACTION_ABORTABLE
(KIP-890). 6: two-phase commit (KIP-939), which 4.3 calls unstable.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "InitProducerIdRequest",
    api_key=22,
    versions="0-6",
    flexible="2+",
    fields=[
        Field(
            "transactional_id",
            "string",
            nullable="0+",
            help="Transactional id, or null for an idempotent producer.",
        ),
        Field("transaction_timeout_ms", "int32", help="Age at which the broker aborts a transaction of this producer."),
        Field("producer_id", "int64", "3+", default=-1, help="The id that the producer has, -1 for none."),
        Field("producer_epoch", "int16", "3+", default=-1, help="The epoch that the producer has, -1 for none."),
        Field("enable_2pc", "bool", "6+", help="Two-phase commit: the transaction waits for an outside decision."),
        Field("keep_prepared_txn", "bool", "6+", help="Keep a prepared transaction instead of aborting it."),
    ],
)

RESPONSE = Message(
    "InitProducerIdResponse",
    api_key=22,
    versions="0-6",
    flexible="2+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("producer_id", "int64", default=-1, help="Producer id."),
        Field("producer_epoch", "int16", help="Producer epoch."),
        Field(
            "ongoing_txn_producer_id",
            "int64",
            "6+",
            default=-1,
            help="Producer id of the kept transaction, -1 for none.",
        ),
        Field(
            "ongoing_txn_producer_epoch",
            "int16",
            "6+",
            default=-1,
            help="Producer epoch of the kept transaction, -1 for none.",
        ),
    ],
)
