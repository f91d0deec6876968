"""Topics and partitions as the metadata of a cluster describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from gregor.protocol.messages import MetadataResponse


@dataclass(frozen=True)
class Partition:
    """A partition; `leader` is -1 while it has none, `leader_epoch` is -1 before Kafka 2.1."""

    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    error_code: int = ErrorCode.NONE


@dataclass(frozen=True)
class Topic:
    """A topic; without partitions and with an error if the cluster does not describe it.

    `topic_id` is all zeros before Kafka 2.8.
    """

    name: str
    topic_id: Uuid = ZERO_UUID
    partitions: Mapping[int, Partition] = field(default_factory=dict)
    is_internal: bool = False
    error_code: int = ErrorCode.NONE


def topics_of(response: MetadataResponse) -> dict[str, Topic]:
    """Return the topics of a response, by name."""
    found = {}
    for topic in response.topics:
        partitions = {
            part.partition_index: Partition(
                part.partition_index, part.leader_id, part.leader_epoch, tuple(part.replica_nodes), part.error_code
            )
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        }
        name = topic.name or ""
        found[name] = Topic(name, bytes(topic.topic_id), partitions, topic.is_internal, topic.error_code)
    return found
