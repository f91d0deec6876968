"""DescribeAcls (29): the access rules that match a filter.

1: pattern types (KIP-290). 2: flexible. 3: resources of type user.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeAclsRequest",
    api_key=29,
    versions="0-3",
    flexible="2+",
    fields=[
        Field(
            "resource_type_filter", "int8", help="1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, and so on."
        ),
        Field("resource_name_filter", "string", nullable="0+", help="Resource, null for any."),
        Field(
            "pattern_type_filter",
            "int8",
            "1+",
            default=3,
            help="1 any, 2 each pattern that matches, 3 literal, 4 prefix.",
        ),
        Field(
            "principal_filter", "string", nullable="0+", help='Principal of the rule, such as "User:a"; null for any.'
        ),
        Field("host_filter", "string", nullable="0+", help="Address of the rule, null for any."),
        Field("operation", "int8", help="1 any, 2 all, 3 read, 4 write, 5 create, and so on."),
        Field("permission_type", "int8", help="1 any, 2 deny, 3 allow."),
    ],
)

RESPONSE = Message(
    "DescribeAclsResponse",
    api_key=29,
    versions="0-3",
    flexible="2+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("error_message", "string", nullable="0+", help="Error message, or null."),
        Field(
            "resources",
            "[]DescribeAclsResource",
            help="Resources with rules that match.",
            fields=[
                Field("resource_type", "int8", help="2 topic, 3 group, 4 cluster, 5 transactional id, and so on."),
                Field("resource_name", "string", help="Resource."),
                Field("pattern_type", "int8", "1+", default=3, help="3 literal, 4 prefix."),
                Field(
                    "acls",
                    "[]AclDescription",
                    help="Rules.",
                    fields=[
                        Field("principal", "string", help='Principal of the rule, such as "User:a".'),
                        Field("host", "string", help="Address of the rule, * for all."),
                        Field("operation", "int8", help="2 all, 3 read, 4 write, 5 create, and so on."),
                        Field("permission_type", "int8", help="2 deny, 3 allow."),
                    ],
                ),
            ],
        ),
    ],
)
