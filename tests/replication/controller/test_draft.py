"""The draft of a decision leaves the context that it started from as it is, and collects the writes."""

from __future__ import annotations

from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import Cluster, Partition, Topic
from gregor.replication.controller.decision.draft import ClusterDraft
from gregor.replication.store.metadata_store import Create, Set
from gregor.replication.store.nodes import PartitionState, ReplicaAssignment, encode_state

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
MOVING = ReplicaAssignment((2, 1), (2,), (1,))
STATE = PartitionState(1, 0, (1,), 1)


def context() -> Cluster:
    partitions = {0: Partition(ReplicaAssignment((1,))), 1: Partition(ReplicaAssignment((1,)), STATE, 4)}
    return Cluster(1, 1, topics={"t": Topic(bytes(15) + b"t", partitions, 7), "u": Topic(bytes(15) + b"u", {})})


def test_the_context_that_a_draft_starts_from_stays_as_it_is() -> None:
    before = context()
    draft = ClusterDraft(before)
    draft.assign(SECOND, before.topics["t"].partitions[1], MOVING)
    draft.change_state(FIRST, before.topics["t"].partitions[0], STATE)
    draft.write_topic("t")
    draft.remove_topic("u")
    draft.replace(failed=frozenset({("t", 0, 1)}))
    after = draft.finish()
    assert before == context()
    assert after.topics.keys() == {"t"}
    assert after.topics["t"].version == 8
    assert after.topics["t"].partitions == {
        0: Partition(ReplicaAssignment((1,)), STATE, 0),
        1: Partition(MOVING, STATE, 4),
    }
    assert (after.moving, after.failed) == (frozenset({SECOND}), frozenset({("t", 0, 1)}))


def test_the_first_state_of_a_partition_is_created_with_missing_parents() -> None:
    draft = ClusterDraft(context())
    third = TopicPartition("t", 2)
    draft.put(third, Partition(ReplicaAssignment((1,))))
    draft.change_state(FIRST, draft.cluster.topics["t"].partitions[0], STATE)
    path, data = "/brokers/topics/t/partitions/0", encode_state(STATE)
    assert draft.writes == [
        (Create(path), Create(f"{path}/state", data))
    ]  # the second partition has the folder already
    draft.change_state(SECOND, draft.cluster.topics["t"].partitions[1], STATE)
    assert draft.writes[1:] == [(Set("/brokers/topics/t/partitions/1/state", data, 4),)]
    assert (draft.created, list(draft.changed_states)) == ({FIRST}, [FIRST, SECOND])


def test_a_removed_topic_has_no_moves() -> None:
    draft = ClusterDraft(context()._replace(moving=frozenset({FIRST}), leaving={SECOND: frozenset({3})}))
    draft.remove_topic("none")
    assert draft.moving and draft.leaving
    draft.remove_topic("t")
    after = draft.finish()
    assert (after.moving, after.leaving) == (frozenset(), {})


def test_stops_of_one_kind_are_one_list() -> None:
    draft = ClusterDraft(context())
    draft.stop_replicas(2, [FIRST], delete=True)
    draft.stop_replicas(2, [SECOND], delete=True)
    draft.stop_replicas(2, [SECOND], delete=False)
    assert draft.stops == {(2, True): [FIRST, SECOND], (2, False): [SECOND]}
