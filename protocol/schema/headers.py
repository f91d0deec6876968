"""What precedes every request and every response.

The response header says which request is answered by nothing but the correlation id. `client_id` keeps the old string
form in flexible versions too: a broker reads it before it knows whether it understands the rest. Version 0 of the
request header, without a client id, is that of ControlledShutdown 0 alone.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST_HEADER = Message(
    "RequestHeader",
    versions="0-2",
    flexible="2+",
    fields=[
        Field("request_api_key", "int16", help="Which API, see ApiKey."),
        Field("request_api_version", "int16", help="The version that the body follows."),
        Field("correlation_id", "int32", help="Chosen by the client; the answer repeats it."),
        Field(
            "client_id",
            "string",
            "1+",
            nullable="1+",
            ignorable=True,
            flexible="none",
            help="What the client calls itself, or null.",
        ),
    ],
)

RESPONSE_HEADER = Message(
    "ResponseHeader",
    versions="0-1",
    flexible="1+",
    fields=[
        Field("correlation_id", "int32", help="Chosen by the client; the answer repeats it."),
    ],
)
