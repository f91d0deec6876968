"""ListTransactions (66): the transactional ids that this broker coordinates (KIP-664).

1: by duration (KIP-994). 2: by a pattern of the transactional id (KIP-1152).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "ListTransactionsRequest",
    api_key=66,
    versions="0-2",
    flexible="0+",
    fields=[
        Field("state_filters", "[]string", help="Only transactions in these states; all if empty."),
        Field("producer_id_filters", "[]int64", help="Only transactions of these producer ids; all if empty."),
        Field(
            "duration_filter",
            "int64",
            "1+",
            default=-1,
            help="Only transactions that have run for longer than these milliseconds; all if negative.",
        ),
        Field(
            "transactional_id_pattern",
            "string",
            "2+",
            nullable="2+",
            default=None,
            help="Only transactional ids that match this regular expression as a whole; all if null or empty.",
        ),
    ],
)

RESPONSE = Message(
    "ListTransactionsResponse",
    api_key=66,
    versions="0-2",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("unknown_state_filters", "[]string", help="Those states of the filter that do not exist."),
        Field(
            "transaction_states",
            "[]TransactionState",
            help="Transactional ids.",
            fields=[
                Field("transactional_id", "string", help="Transactional id."),
                Field("producer_id", "int64", help="Producer id."),
                Field("transaction_state", "string", help="State of its transaction."),
            ],
        ),
    ],
)
