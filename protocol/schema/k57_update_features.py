"""UpdateFeatures (57): change the finalised feature levels of the cluster (KIP-584, KIP-778).

1: kind of change instead of a flag, validation alone. 2: one error for the whole request, as all updates are made or
none.
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "UpdateFeaturesRequest",
    api_key=57,
    versions="0-2",
    flexible="0+",
    fields=[
        Field(
            "timeout_ms",
            "int32",
            default=60000,
            help="Time after which the broker responds with a timeout.",
        ),
        Field(
            "feature_updates",
            "[]FeatureUpdateKey",
            help="The features to change.",
            fields=[
                Field("feature", "string", help="Feature name."),
                Field("max_version_level", "int16", help="New level; 0 ends the feature."),
                Field("allow_downgrade", "bool", versions="0", help="Whether the level may fall."),
                Field(
                    "upgrade_type",
                    "int8",
                    versions="1+",
                    default=1,
                    help="1 upgrade, 2 safe downgrade, 3 downgrade that may lose metadata.",
                ),
            ],
        ),
        Field("validate_only", "bool", versions="1+", help="Check the request without a change."),
    ],
)

RESPONSE = Message(
    "UpdateFeaturesResponse",
    api_key=57,
    versions="0-2",
    flexible="0+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
        Field("error_message", "string", nullable="0+", help="Error message, or null."),
        Field(
            "results",
            "[]UpdatableFeatureResult",
            versions="0-1",
            ignorable=True,
            help="One entry for each requested feature.",
            fields=[
                Field("feature", "string", help="Feature name."),
                Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                Field("error_message", "string", nullable="0+", help="Error message, or null."),
            ],
        ),
    ],
)
