"""TopicBirths: which topics are new, and since when."""

from __future__ import annotations

from gregor.broker.history.topic_births import STARTING_MS, TopicBirths
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import UpdateMetadataRequest
from gregor.protocol.turns import run_all
from gregor.replication.partition.metadata_image import LEADER_DURING_DELETE, MetadataImage


def update(image: MetadataImage, *names: str, leader: int = 1, partitions: int = 1) -> None:
    topics = [
        UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=name,
            topic_id=Uuid(name.encode().ljust(16, b"-")),
            partition_states=[
                UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=index, leader=leader)
                for index in range(partitions)
            ],
        )
        for name in names
    ]
    run_all(image.apply(UpdateMetadataRequest(controller_id=1, topic_states=topics)))


def test_topics_of_the_start_are_not_new() -> None:
    image, now_ms = MetadataImage(), 1000
    births = TopicBirths(image, lambda: now_ms)
    update(image, "a")
    now_ms += STARTING_MS
    update(image, "b")
    now_ms += 1
    update(image, "a", "b", partitions=2)
    update(image, "c")
    assert [births.created_ms(name) for name in "abc"] == [None, None, now_ms]


def test_topic_of_a_name_that_was_deleted_is_new() -> None:
    image, now_ms = MetadataImage(), 0
    births = TopicBirths(image, lambda: now_ms)
    update(image, "a", "b")
    now_ms = STARTING_MS + 1
    update(image, "a", leader=LEADER_DURING_DELETE)
    assert births.created_ms("a") is None
    now_ms += 1
    update(image, "a", "b")
    assert [births.created_ms(name) for name in "ab"] == [now_ms, None]
