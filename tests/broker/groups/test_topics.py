"""ClusterTopics: the topics as consumer groups see them, and the changes that the coordinator is notified of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gregor.broker.groups.topics import ClusterTopics
from gregor.coordinator.ports import TopicInfo, TopicView
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import UpdateMetadataRequest
from gregor.protocol.turns import run_all
from gregor.replication.partition.metadata_image import LEADER_DURING_DELETE, MetadataImage

ID, OTHER_ID = b"i" * 16, b"o" * 16
Topics = Mapping[tuple[str, bytes], Sequence[Sequence[int]]]


class Subject:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self.topics = ClusterTopics(self.image)
        self.view: TopicView = self.topics
        self.told: list[list[str] | None] = []
        self.topics.on_changed.append(self._tell)

    def _tell(self, names: Collection[str] | None) -> None:
        self.told.append(None if names is None else sorted(names))

    def update(self, topics: Topics, racks: Mapping[int, str | None], leader: int | None = None) -> None:
        """Apply the replicas of the partitions of topics, and the racks of live brokers."""
        states = [
            UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=topic_id,
                partition_states=[
                    UpdateMetadataRequest.UpdateMetadataPartitionState(
                        partition_index=index,
                        leader=replicas[0] if leader is None else leader,
                        isr=list(replicas),
                        replicas=list(replicas),
                    )
                    for index, replicas in enumerate(partitions)
                ],
            )
            for (name, topic_id), partitions in topics.items()
        ]
        brokers = [UpdateMetadataRequest.UpdateMetadataBroker(id=id_, rack=rack) for id_, rack in racks.items()]
        request = UpdateMetadataRequest(controller_epoch=1, topic_states=states, live_brokers=brokers)
        run_all(self.image.apply(request))

    def changes(self) -> list[list[str] | None]:
        told, self.told = self.told, []
        return told


def test_topics_by_name_and_id() -> None:
    subject = Subject()
    assert (subject.view.find("t"), subject.view.name_of(ID), list(subject.view.names())) == (None, None, [])
    subject.update({("t", ID): [[1], [2]], ("old", ZERO_UUID): [[1]]}, {1: None, 2: None})
    assert subject.view.find("t") == TopicInfo(ID, 2)
    assert subject.view.find("t") is subject.view.find("t")
    assert subject.view.find("old") is None, "a topic without an id cannot be assigned"
    assert subject.view.name_of(ID) == "t"
    assert sorted(subject.view.names()) == ["old", "t"]
    assert subject.changes() == [["old", "t"]]


def test_racks_of_partitions_outlast_their_brokers() -> None:
    subject = Subject()
    subject.update({("t", ID): [[1, 2], [3]]}, {1: "a", 2: "b", 3: None})
    expected = TopicInfo(ID, 2, (("a", "b"), ()))
    assert subject.view.find("t") == expected
    assert subject.changes() == [None], "racks are known for the first time"
    subject.update({}, {1: "a", 3: None})
    assert subject.view.find("t") == expected
    subject.update({}, {1: "a", 2: "b", 3: None})
    assert subject.changes() == []
    subject.update({}, {1: "a", 2: "c", 3: None})
    assert subject.view.find("t") == TopicInfo(ID, 2, (("a", "c"), ()))
    assert subject.changes() == [None]


def test_coordinator_is_notified_of_other_partitions_replicas_and_deletions_alone() -> None:
    subject = Subject()
    racks = {1: "a", 2: "b"}
    subject.update({("t", ID): [[1, 2]], ("u", OTHER_ID): [[1]]}, racks)
    assert subject.changes() == [None]
    subject.update({("t", ID): [[1, 2]]}, racks, leader=2)
    assert subject.changes() == []
    subject.update({("t", ID): [[1, 2], [1]]}, racks)
    assert subject.view.find("t") == TopicInfo(ID, 2, (("a", "b"), ("a",)))
    assert subject.changes() == [["t"]]
    subject.update({("u", OTHER_ID): [[2]]}, racks)
    assert subject.view.find("u") == TopicInfo(OTHER_ID, 1, (("b",),))
    assert subject.changes() == [["u"]]
    subject.update({("u", OTHER_ID): [[2]]}, racks, leader=LEADER_DURING_DELETE)
    assert (subject.view.find("u"), subject.view.name_of(OTHER_ID)) == (None, None)
    assert subject.changes() == [["u"]]
