"""TopicEvents: what the coordinators and the settings learn of changed topics."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from gregor.broker.node.topic_events import TopicEvents
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import UpdateMetadataRequest
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from gregor.protocol.turns import run_all
from gregor.replication.partition.metadata_image import LEADER_DURING_DELETE, MetadataImage


class Coordinator:
    def __init__(self) -> None:
        self.counts: list[int] = []
        self.deleted: list[list[str]] = []

    def on_partition_count(self, count: int) -> None:
        self.counts.append(count)

    def on_topics_deleted(self, topics: Iterable[str]) -> None:
        self.deleted.append(sorted(topics))


def update(image: MetadataImage, partitions: dict[str, int], leader: int = 1) -> None:
    """Topics with a number of partitions each."""
    topics = [
        UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=name,
            topic_id=Uuid(name.encode().ljust(16, b"-")[:16]),
            partition_states=[
                UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=index, leader=leader)
                for index in range(count)
            ],
        )
        for name, count in partitions.items()
    ]
    run_all(image.apply(UpdateMetadataRequest(controller_id=1, topic_states=topics)))


def test_only_topics_of_the_update_are_passed_on() -> None:
    image, groups, transactions, forgotten = MetadataImage(), Coordinator(), Coordinator(), list[str]()
    replicas: Any = SimpleNamespace(on_leadership=[], on_stopped=[], settings_changed=None)
    configs: Any = SimpleNamespace(on_topics_changed=[], forget=forgotten.append)
    TopicEvents(replicas, image, configs, cast("Any", groups), cast("Any", transactions))
    update(image, {"a": 1, "b": 2, GROUP_METADATA_TOPIC: 3})
    update(image, {"b": 2, "c": 1})
    assert (groups.counts, transactions.counts, groups.deleted) == ([3], [], [])
    update(image, {"a": 1, "unknown": 1}, LEADER_DURING_DELETE)
    assert (groups.deleted, forgotten) == ([["a"]], ["a"])
    update(image, {"a": 1, GROUP_METADATA_TOPIC: 5, TRANSACTION_STATE_TOPIC: 7})
    update(image, {"b": 2, GROUP_METADATA_TOPIC: 5}, LEADER_DURING_DELETE)
    assert groups.deleted[1:] == [sorted(["b", GROUP_METADATA_TOPIC])]
    assert (groups.counts, transactions.counts) == ([3, 5], [7])
