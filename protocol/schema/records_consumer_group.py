"""Keys and values of `__consumer_offsets` for groups of the consumer protocol (KIP-848).

Each begins with an int16, its version; that of a key is the kind of the record, and what it was called in Kafka 3.9 is
its version, although each of these keys has one form only. Groups of the consumer protocol have tags in each value, so
that fields can be added (KIP-915).

Kafka's definitions have null defaults that are not in quotes, which its generator reads as none: the defaults are an
empty array and a struct of defaults, and a null is written.
"""

from __future__ import annotations

from gregor.protocol.codec.model import Field, Message, Struct


def _topic_partitions() -> list[Field]:
    return [
        Field("topic_id", "uuid", help="Topic id."),
        Field("partitions", "[]int32", help="Partition numbers."),
    ]


def _member_key(name: str) -> Message:
    return Message(
        name,
        versions="0",
        fields=[
            Field("group_id", "string", help="Group."),
            Field("member_id", "string", help="Member id."),
        ],
    )


def _group_key(name: str) -> Message:
    return Message(name, versions="0", fields=[Field("group_id", "string", help="Group.")])


CONSUMER_GROUP_METADATA_KEY = _group_key("ConsumerGroupMetadataKey")

CONSUMER_GROUP_METADATA_VALUE = Message(
    "ConsumerGroupMetadataValue",
    versions="0",
    flexible="0+",
    fields=[
        Field("epoch", "int32", help="Group epoch."),
        Field(
            "metadata_hash",
            "int64",
            tag=0,
            help="Hash of the subscribed topics, their partitions and racks; 0 before it is known (KIP-1101).",
        ),
    ],
)

CONSUMER_GROUP_PARTITION_METADATA_KEY = _group_key("ConsumerGroupPartitionMetadataKey")

CONSUMER_GROUP_PARTITION_METADATA_VALUE = Message(
    "ConsumerGroupPartitionMetadataValue",
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "topics",
            "[]TopicMetadata",
            help="Subscribed topics, as brokers before 4.1 recorded them.",
            fields=[
                Field("topic_id", "uuid", help="Topic id."),
                Field("topic_name", "string", help="Topic name."),
                Field("num_partitions", "int32", help="Number of its partitions."),
                Field(
                    "partition_metadata",
                    "[]PartitionMetadata",
                    help="Racks by partition, empty when unknown.",
                    fields=[
                        Field("partition", "int32", help="Partition number."),
                        Field("racks", "[]string", help="Racks of its replicas."),
                    ],
                ),
            ],
        ),
    ],
)

CONSUMER_GROUP_MEMBER_METADATA_KEY = _member_key("ConsumerGroupMemberMetadataKey")

CONSUMER_GROUP_MEMBER_METADATA_VALUE = Message(
    "ConsumerGroupMemberMetadataValue",
    versions="0",
    flexible="0+",
    fields=[
        Field("instance_id", "string", nullable="0+", help="Name of a static member, or null."),
        Field("rack_id", "string", nullable="0+", help="Rack of the member, or null."),
        Field("client_id", "string", help="Client id."),
        Field("client_host", "string", help="Address it connects from."),
        Field("subscribed_topic_names", "[]string", help="Names of the topics that it subscribes to."),
        Field(
            "subscribed_topic_regex",
            "string",
            nullable="0+",
            help="Regular expression of names that it subscribes to, or null.",
        ),
        Field(
            "rebalance_timeout_ms",
            "int32",
            default=-1,
            help="Time in which it must revoke partitions, in milliseconds.",
        ),
        Field("server_assignor", "string", nullable="0+", help="Assignor that it prefers, or null."),
        Field(
            "classic_member_metadata",
            "ClassicMemberMetadata",
            nullable="0+",
            tag=0,
            help="Protocols that a member of the classic protocol joined with; null for one of the consumer protocol.",
            fields=[
                Field("session_timeout_ms", "int32", help="Milliseconds without a heartbeat until it is removed."),
                Field(
                    "supported_protocols",
                    "[]ClassicProtocol",
                    help="Assignors that it supports.",
                    fields=[
                        Field("name", "string", help="Name of the assignor."),
                        Field("metadata", "bytes", help="Subscription that the member sent for it."),
                    ],
                ),
            ],
        ),
    ],
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY = _group_key("ConsumerGroupTargetAssignmentMetadataKey")

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = Message(
    "ConsumerGroupTargetAssignmentMetadataValue",
    versions="0",
    flexible="0+",
    fields=[
        Field("assignment_epoch", "int32", help="Group epoch that the target assignment was computed for."),
        Field(
            "assignment_timestamp",
            "int64",
            tag=0,
            ignorable=True,
            help="When it was computed, in milliseconds; 0 when unknown (KIP-1263).",
        ),
    ],
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY = _member_key("ConsumerGroupTargetAssignmentMemberKey")

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = Message(
    "ConsumerGroupTargetAssignmentMemberValue",
    versions="0",
    flexible="0+",
    fields=[
        Field(
            "topic_partitions",
            "[]TopicPartition",
            help="Partitions that the member will own.",
            fields=_topic_partitions(),
        ),
    ],
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY = _member_key("ConsumerGroupCurrentMemberAssignmentKey")

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = Message(
    "ConsumerGroupCurrentMemberAssignmentValue",
    versions="0",
    flexible="0+",
    fields=[
        Field("member_epoch", "int32", help="Member epoch that its heartbeats must have."),
        Field("previous_member_epoch", "int32", help="Member epoch before; valid in a retry of a lost heartbeat."),
        Field("state", "int8", help="Number of the member's state."),
        Field("assigned_partitions", "[]TopicPartitions", help="Partitions that the member owns."),
        Field("partitions_pending_revocation", "[]TopicPartitions", help="Partitions that it must revoke."),
    ],
    structs=[
        Struct(
            "TopicPartitions",
            [
                *_topic_partitions(),
                Field(
                    "assignment_epochs",
                    "[]int32",
                    nullable="0+",
                    tag=0,
                    help="Member epoch at which it got each of the partitions, empty for the member epoch (KIP-1251).",
                ),
            ],
        ),
    ],
)

CONSUMER_GROUP_REGULAR_EXPRESSION_KEY = Message(
    "ConsumerGroupRegularExpressionKey",
    versions="0",
    fields=[
        Field("group_id", "string", help="Group."),
        Field("regular_expression", "string", help="Regular expression."),
    ],
)

CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE = Message(
    "ConsumerGroupRegularExpressionValue",
    versions="0",
    flexible="0+",
    fields=[
        Field("topics", "[]string", help="Names of the topics that match."),
        Field("version", "int64", help="Version of the cluster metadata in which they matched."),
        Field("timestamp", "int64", help="When they were matched, in milliseconds."),
    ],
)
