"""SaslHandshake (17): the choice of a SASL mechanism (KIP-43).

0: tokens follow, each behind its size. 1: tokens follow in SaslAuthenticate requests (KIP-152).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "SaslHandshakeRequest",
    api_key=17,
    versions="0-1",
    flexible="none",
    fields=[
        Field("mechanism", "string", help="Mechanism that the client wants to use."),
    ],
)

RESPONSE = Message(
    "SaslHandshakeResponse",
    api_key=17,
    versions="0-1",
    flexible="none",
    fields=[
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("mechanisms", "[]string", help="Mechanisms of the listener."),
    ],
)
