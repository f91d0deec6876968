"""FindCoordinator (10): the coordinator of a group, a transactional id or a share partition.

1: transactional ids. 3: flexible. 4: many keys in one request (KIP-699). 5: new retriable error for transactions
(KIP-890). 6: share partitions (KIP-932).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "FindCoordinatorRequest",
    api_key=10,
    versions="0-6",
    flexible="3+",
    fields=[
        Field("key", "string", "0-3", help="Group id, transactional id or share partition."),
        Field("key_type", "int8", "1+", help="0 group, 1 transaction, 2 share partition."),
        Field("coordinator_keys", "[]string", "4+", help="Group ids, transactional ids or share partitions."),
    ],
)

RESPONSE = Message(
    "FindCoordinatorResponse",
    api_key=10,
    versions="0-6",
    flexible="3+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            "1+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", "0-3", help="An ErrorCode; 0 for success."),
        Field(
            "error_message",
            "string",
            "1-3",
            nullable="1-3",
            ignorable=True,
            help="Error message, or null.",
        ),
        Field("node_id", "int32", "0-3", help="Broker id."),
        Field("host", "string", "0-3", help="Host name to connect to."),
        Field("port", "int32", "0-3", help="TCP port."),
        Field(
            "coordinators",
            "[]Coordinator",
            "4+",
            help="One entry for each key.",
            fields=[
                Field("key", "string", "4+", help="The requested key."),
                Field("node_id", "int32", "4+", help="Broker id."),
                Field("host", "string", "4+", help="Host name to connect to."),
                Field("port", "int32", "4+", help="TCP port."),
                Field("error_code", "int16", "4+", help="An ErrorCode; 0 for success."),
                Field(
                    "error_message",
                    "string",
                    "4+",
                    nullable="4+",
                    ignorable=True,
                    help="Error message, or null.",
                ),
            ],
        ),
    ],
)
