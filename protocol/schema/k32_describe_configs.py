"""DescribeConfigs (32): settings of topics, brokers, loggers and groups.

1: synonyms and sources. 3: documentation and types. 4: flexible.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "DescribeConfigsRequest",
    api_key=32,
    versions="0-4",
    flexible="4+",
    fields=[
        Field(
            "resources",
            "[]DescribeConfigsResource",
            help="Resources to describe.",
            fields=[
                Field("resource_type", "int8", help="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."),
                Field("resource_name", "string", help="Topic, broker id or group."),
                Field("configuration_keys", "[]string", nullable="0+", help="Requested settings, null for all."),
            ],
        ),
        Field("include_synonyms", "bool", "1+", help="Whether the response includes all sources of each value."),
        Field(
            "include_documentation", "bool", "3+", help="Whether the response includes a description of each setting."
        ),
    ],
)

RESPONSE = Message(
    "DescribeConfigsResponse",
    api_key=32,
    versions="0-4",
    flexible="4+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field(
            "results",
            "[]DescribeConfigsResult",
            help="One entry for each resource.",
            fields=[
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("error_message", "string", nullable="0+", help="Error message, or null."),
                Field("resource_type", "int8", help="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."),
                Field("resource_name", "string", help="Topic, broker id or group."),
                Field(
                    "configs",
                    "[]DescribeConfigsResourceResult",
                    help="Settings.",
                    fields=[
                        Field("name", "string", help="Setting."),
                        Field("value", "string", nullable="0+", help="Its value, null if it is a secret."),
                        Field("read_only", "bool", help="Whether it cannot be changed."),
                        Field("is_default", "bool", "0", help="Whether it has not been set."),
                        Field(
                            "config_source",
                            "int8",
                            "1+",
                            default=-1,
                            ignorable=True,
                            help="1 topic, 2 broker, 3 all brokers, 4 file, 5 default, 6 logger; -1 unknown.",
                        ),
                        Field("is_sensitive", "bool", help="Whether the value is a secret."),
                        Field(
                            "synonyms",
                            "[]DescribeConfigsSynonym",
                            "1+",
                            ignorable=True,
                            help="All sources of a value, the effective one first.",
                            fields=[
                                Field("name", "string", "1+", help="Setting that gives it."),
                                Field(
                                    "value",
                                    "string",
                                    "1+",
                                    nullable="0+",
                                    help="Its value, null if it is a secret.",
                                ),
                                Field("source", "int8", "1+", help="Source of the value, as in `config_source`."),
                            ],
                        ),
                        Field(
                            "config_type",
                            "int8",
                            "3+",
                            ignorable=True,
                            help="bool, string, int, short, long, double, list, class, password from 1 on; or 0.",
                        ),
                        Field(
                            "documentation",
                            "string",
                            "3+",
                            nullable="0+",
                            ignorable=True,
                            help="A text about the setting, or null.",
                        ),
                    ],
                ),
            ],
        ),
    ],
)
