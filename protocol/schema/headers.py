"""The headers that precede every request and every response.

Only the correlation id connects a response to its request. `client_id` keeps the old string form in flexible versions,
too: a broker reads it before it knows whether it supports the version of the request. Only ControlledShutdown 0 has
version 0 of the request header, without a client id.
"""

from gregor.protocol.codec.model import Field, Message, NeverCompactField

REQUEST_HEADER = Message(
    "RequestHeader",
    versions="0-2",
    flexible="2+",
    fields=[
        Field("request_api_key", "int16", help="Number of the API, see ApiKey."),
        Field("request_api_version", "int16", help="Version of the body."),
        Field("correlation_id", "int32", help="Chosen by the client and repeated in the response."),
        NeverCompactField(
            "client_id",
            "string",
            "1+",
            nullable="1+",
            ignorable=True,
            help="The name that the client gives itself, or null.",
        ),
    ],
)

RESPONSE_HEADER = Message(
    "ResponseHeader",
    versions="0-1",
    flexible="1+",
    fields=[
        Field("correlation_id", "int32", help="Chosen by the client and repeated in the response."),
    ],
)
