"""The data of consumers inside the classic protocol: metadata of a JoinGroup protocol, and assignments of SyncGroup.

Each begins with an int16, its version, and the fields of that version follow. A newer version only adds fields at the
end, so a reader decodes what it does not know as the newest version that it knows (Kafka: ConsumerProtocol).
"""

from __future__ import annotations

from gregor.protocol.codec.model import Field, Message


def _partitions() -> list[Field]:
    return [
        Field("topic", "string", help="Topic name."),
        Field("partitions", "[]int32", help="Partition numbers."),
    ]


CONSUMER_PROTOCOL_SUBSCRIPTION = Message(
    "ConsumerProtocolSubscription",
    versions="0-3",
    fields=[
        Field("topics", "[]string", help="Topics that the member subscribes to."),
        Field("user_data", "bytes", nullable="0+", default=None, help="Data of a custom assignor, or null."),
        Field(
            "owned_partitions",
            "[]TopicPartition",
            "1+",
            ignorable=True,
            help="Partitions that the member owned when it joined (KIP-429).",
            fields=_partitions(),
        ),
        Field("generation_id", "int32", "2+", default=-1, ignorable=True, help="Generation in which it owned them."),
        Field("rack_id", "string", "3+", nullable="3+", default=None, ignorable=True, help="Rack of the member."),
    ],
)

CONSUMER_PROTOCOL_ASSIGNMENT = Message(
    "ConsumerProtocolAssignment",
    versions="0-3",
    fields=[
        Field(
            "assigned_partitions",
            "[]TopicPartition",
            help="Partitions that the member is assigned.",
            fields=_partitions(),
        ),
        Field("user_data", "bytes", nullable="0+", default=None, help="Data of a custom assignor, or null."),
    ],
)
