"""Elections by request, in contexts with several brokers, decided by the controller's own rules."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import Cluster, LiveBroker, Partition, Topic
from gregor.replication.controller.decision.decide import decide
from gregor.replication.controller.elect_leaders import election_refusal, election_result
from gregor.replication.controller.events import PreferredElection, UncleanElection
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, ReplicaAssignment

KEY = TopicPartition("t", 0)


def picture(leader: int, isr: tuple[int, ...], alive: tuple[int, ...], *, deleting: bool = False) -> Cluster:
    """Topic t with replicas 1, 2 and 3."""
    state = PartitionState(leader, 4, isr, 1)
    partition = Partition(ReplicaAssignment((1, 2, 3)), state, version=7)
    topic = Topic(b"i" * 16, {0: partition}, undeleted=frozenset({(0, 1)}) if deleting else None)
    brokers = {id_: LiveBroker(BrokerRegistration(id_, ()), 10 + id_) for id_ in alive}
    return Cluster(1, 1, brokers, {"t": topic})


def elect(cluster: Cluster, unclean: bool, key: TopicPartition = KEY) -> int | ErrorCode:
    """As the controller loop does it."""
    refusal = election_refusal(cluster, key, unclean)
    if refusal is None:
        event = (UncleanElection if unclean else PreferredElection)(frozenset({key}))
        cluster, _ = decide(cluster, event)
        result = election_result(cluster, key, unclean)
    else:
        result = refusal
    return result.code if isinstance(result, KafkaError) else result


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "preferred", "unclean"),
    [
        (1, (1, 2), (1, 2, 3), ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED),
        (2, (1, 2), (1, 2, 3), 1, ErrorCode.ELECTION_NOT_NEEDED),
        (2, (2, 3), (1, 2, 3), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELECTION_NOT_NEEDED),
        (2, (1, 2), (2, 3), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELECTION_NOT_NEEDED),
        (-1, (2,), (3,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 3),
        (-1, (2,), (1, 3), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1),
        (-1, (2,), (9,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_elections(
    leader: int, isr: tuple[int, ...], alive: tuple[int, ...], preferred: int | ErrorCode, unclean: int | ErrorCode
) -> None:
    cluster = picture(leader, isr, alive)
    assert elect(cluster, unclean=False) == preferred
    assert elect(cluster, unclean=True) == unclean


@pytest.mark.parametrize("unclean", [False, True])
def test_partitions_that_are_not_there(unclean: bool) -> None:
    cluster = picture(2, (1, 2), (1, 2))
    for key in (("t", 1), ("u", 0)):
        assert elect(cluster, unclean, key) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(picture(2, (1, 2), (1, 2), deleting=True), unclean) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_unclean_leader_is_alone_in_sync_and_marked_as_recovering() -> None:
    cluster, _ = decide(picture(-1, (2,), (3,)), UncleanElection(frozenset({KEY})))
    partition = cluster.partition(KEY)
    assert partition is not None and partition.state is not None
    assert (partition.state.leader, partition.state.isr, partition.state.recovering) == (3, (3,), True)
    assert partition.state.leader_epoch == 5
