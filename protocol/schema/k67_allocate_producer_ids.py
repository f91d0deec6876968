"""AllocateProducerIds (67): a broker requests a block of producer ids from the controller (KIP-730)."""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "AllocateProducerIdsRequest",
    api_key=67,
    versions="0",
    flexible="0+",
    fields=[
        Field("broker_id", "int32", help="Broker that requests ids."),
        Field("broker_epoch", "int64", default=-1, help="Its epoch, -1 when unknown."),
    ],
)

RESPONSE = Message(
    "AllocateProducerIdsResponse",
    api_key=67,
    versions="0",
    flexible="0+",
    fields=[
        Field("throttle_time_ms", "int32", help="Always 0 between brokers."),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("producer_id_start", "int64", help="First id of the block."),
        Field("producer_id_len", "int32", help="Number of ids in the block."),
    ],
)
