"""MetadataImage: what updates leave of it."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import UpdateMetadataRequest
from gregor.protocol.turns import run_all
from gregor.replication.partition import metadata_image
from gregor.replication.partition.metadata_image import LEADER_DURING_DELETE, Endpoint, MetadataImage, PartitionState

ID, OTHER_ID = b"i" * 16, b"o" * 16


def update(
    *topics: tuple[str, bytes, dict[int, int]], brokers: tuple[int, ...] = (0,), controller_epoch: int = 1
) -> UpdateMetadataRequest:
    """Topics as (name, id, {partition: leader})."""
    return UpdateMetadataRequest(
        controller_id=brokers[0] if brokers else -1,
        controller_epoch=controller_epoch,
        topic_states=[
            UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=topic_id,
                partition_states=[
                    UpdateMetadataRequest.UpdateMetadataPartitionState(
                        partition_index=index, leader=leader, leader_epoch=4, isr=[leader], replicas=[leader, 9]
                    )
                    for index, leader in leaders.items()
                ],
            )
            for name, topic_id, leaders in topics
        ],
        live_brokers=[
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=id_,
                rack="r",
                endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(host="h", port=9092 + id_, listener="IN")],
            )
            for id_ in brokers
        ],
    )


def names(image: MetadataImage) -> list[str]:
    return [topic.name for topic in image.topics()]


def test_updates_add_up_for_topics_and_replace_brokers() -> None:
    image = MetadataImage()
    versions = [image.version]
    told: list[int] = []
    image.on_update.append(lambda: told.append(image.version))
    for request in (update(("t", ID, {0: 1, 1: 2}), brokers=(1, 2)), update(("a", OTHER_ID, {0: 2}), brokers=(2,))):
        assert run_all(image.apply(request)).error_code == 0
        versions.append(image.version)
    assert versions == sorted(set(versions)) and told == versions[1:]
    assert names(image) == ["a", "t"]
    assert image.partition("t", 0) == PartitionState(1, 4, [1], [1, 9], [])
    assert (image.partition("t", 5), image.partition("x", 0)) == (None, None)
    assert (image.partition_count("t"), image.partition_count("x")) == (2, 0)
    assert (image.topic_name(ID), image.topic_name(bytes(16))) == ("t", None)
    assert (image.controller_id, image.is_alive(2), image.is_alive(1)) == (2, True, False)
    assert image.brokers[2].endpoints == {"IN": Endpoint("h", 9094, 0)}


def test_who_is_alive_says_nothing_of_topics_that_are_expected() -> None:
    image = MetadataImage()
    image.expect_topics(True)
    assert not image.is_informed
    run_all(image.apply(update()))
    assert not image.is_informed
    run_all(image.apply(update(("t", ID, {0: 1}))))
    assert image.is_informed
    run_all(image.apply(update(("t", ID, {0: LEADER_DURING_DELETE}))))
    assert image.is_informed


def test_deleted_partitions_leave_and_with_the_last_the_topic() -> None:
    image = MetadataImage()
    run_all(image.apply(update(("t", ID, {0: 0, 1: 0}))))
    run_all(image.apply(update(("t", ID, {0: -2}))))
    topic = image.topic("t")
    assert topic is not None and list(topic.partitions) == [1]
    run_all(image.apply(update(("t", ID, {1: -2}))))
    assert (image.topic("t"), image.topic_name(ID)) == (None, None)
    # Of a topic that was never known nothing stays either.
    run_all(image.apply(update(("x", OTHER_ID, {0: -2}))))
    assert names(image) == []


def test_topics_that_go_while_all_are_looked_at_are_no_trouble() -> None:
    image = MetadataImage()
    run_all(image.apply(update(("a", ID, {0: 0}), ("t", OTHER_ID, {0: 0}))))
    topics = image.topics()
    assert next(topics).name == "a"
    run_all(image.apply(update(("t", OTHER_ID, {0: LEADER_DURING_DELETE}))))
    assert [topic.name for topic in topics] == ["t"]
    assert names(image) == ["a"]


def test_a_new_topic_of_an_old_name_starts_afresh() -> None:
    image = MetadataImage()
    run_all(image.apply(update(("t", ID, {0: 0, 1: 0}))))
    run_all(image.apply(update(("t", OTHER_ID, {0: 0}))))
    topic: Any = image.topic("t")
    assert (topic.topic_id, list(topic.partitions)) == (OTHER_ID, [0])
    assert (image.topic_name(ID), image.topic_name(OTHER_ID)) == (None, "t")


def test_an_id_that_comes_later_is_taken() -> None:
    image = MetadataImage()
    run_all(image.apply(update(("t", bytes(16), {0: 0}))))
    run_all(image.apply(update(("t", ID, {1: 0}))))
    topic: Any = image.topic("t")
    assert (topic.topic_id, list(topic.partitions), image.topic_name(ID)) == (ID, [0, 1], "t")


def test_older_controllers_are_refused() -> None:
    image = MetadataImage()
    run_all(image.apply(update(("t", ID, {0: 0}), controller_epoch=5)))
    version = image.version
    response = run_all(image.apply(update(("u", OTHER_ID, {0: 0}), controller_epoch=4)))
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert (names(image), image.version) == (["t"], version)


def test_a_deleted_name_is_told_once_unless_it_is_in_use_again() -> None:
    image = MetadataImage()
    gone = {0: LEADER_DURING_DELETE}
    run_all(image.apply(update(("t", ID, {0: 1}), ("u", OTHER_ID, {0: 1}))))
    assert not image.pop_deleted("t")
    run_all(image.apply(update(("t", ID, gone), ("u", OTHER_ID, gone))))
    assert [image.pop_deleted("t") for _ in range(2)] == [True, False]
    run_all(image.apply(update(("u", OTHER_ID, {0: 1}))))
    assert not image.pop_deleted("u")


def test_the_latest_deleted_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_image, "_MAX_DELETED_NAMES", 2)
    image = MetadataImage()
    for name in "abc":
        run_all(image.apply(update((name, ID, {0: 1}))))
        run_all(image.apply(update((name, ID, {0: LEADER_DURING_DELETE}))))
    assert [image.pop_deleted(name) for name in "abc"] == [False, True, True]


def test_topics_are_removed_unless_an_update_has_changed_them() -> None:
    image = MetadataImage()
    run_all(image.apply(update(("t", ID, {0: 1}), ("u", OTHER_ID, {0: 1}))))
    known = list(image.topics())
    run_all(image.apply(update(("u", OTHER_ID, {0: 1}))))
    moved: list[str] = []
    versions: list[int] = []
    image.on_topics_moved.append(moved.extend)
    image.on_update.append(lambda: versions.append(image.version))
    image.remove(known)
    assert (names(image), image.topic_name(ID), moved, versions) == (["u"], None, ["t"], [3])
    assert image.pop_deleted("t")
    image.remove(known)
    assert versions == [3]


def test_moved_topics_are_those_with_other_partitions_or_replicas() -> None:
    image = MetadataImage()
    moved: list[set[str]] = []
    versions: list[int] = []
    image.on_topics_moved.append(lambda names: (moved.append(set(names)), versions.append(image.version))[0])
    for request in (
        update(("t", ID, {0: 1}), ("u", OTHER_ID, {0: 1})),
        update(("t", ID, {0: 1})),
        update(("t", ID, {0: 1, 1: 1}), ("u", OTHER_ID, {0: 1})),
        update(("u", OTHER_ID, {0: 2})),
        update(("t", OTHER_ID, {0: 1, 1: 1})),
        update(("t", OTHER_ID, {0: LEADER_DURING_DELETE, 1: LEADER_DURING_DELETE})),
        update(("unknown", OTHER_ID, {0: LEADER_DURING_DELETE})),
        update(brokers=(1,)),
    ):
        run_all(image.apply(request))
    assert moved == [{"t", "u"}, {"t"}, {"u"}, {"t"}, {"t"}]
    assert versions == [1, 3, 4, 5, 6]


def test_change_of_leader_or_in_sync_replicas_moves_no_topic() -> None:
    image = MetadataImage()
    request = update(("t", ID, {0: 1}))
    run_all(image.apply(request))
    moved: list[set[str]] = []
    image.on_topics_moved.append(lambda names: moved.append(set(names)))
    later = update(("t", ID, {0: 1}))
    partition = later.topic_states[0].partition_states[0]
    partition.leader, partition.leader_epoch, partition.isr = 9, 5, [9]
    run_all(image.apply(later))
    assert image.partition("t", 0) == PartitionState(9, 5, [9], [1, 9], [])
    assert moved == []
