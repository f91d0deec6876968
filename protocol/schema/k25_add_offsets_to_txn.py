"""AddOffsetsToTxn (25): register a group with the transaction that will commit offsets of it.

2: PRODUCER_FENCED. 3: flexible. 4: TRANSACTION_ABORTABLE (KIP-890).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "AddOffsetsToTxnRequest",
    api_key=25,
    versions="0-4",
    flexible="3+",
    fields=[
        Field("transactional_id", "string", help="Transactional id."),
        Field("producer_id", "int64", help="Producer id of the transaction."),
        Field("producer_epoch", "int16", help="Its producer epoch."),
        Field("group_id", "string", help="Group."),
    ],
)

RESPONSE = Message(
    "AddOffsetsToTxnResponse",
    api_key=25,
    versions="0-4",
    flexible="3+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
    ],
)
