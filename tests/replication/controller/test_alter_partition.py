"""Which in-sync sets the controller grants: the rows of Kafka's tryProcessAlterPartition, and what KRaft adds."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.replication.controller.alter_partition import ANY_EPOCH, AlterPartition, refusal
from gregor.replication.controller.context import Cluster, LiveBroker, Partition, Topic
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, ReplicaAssignment

KEY = ("t", 0)
GRANTED = None


def cluster(state: PartitionState | None = None, shutting_down: int = -1, **topic: Any) -> Cluster:
    """Brokers 1 to 4 with epochs 10 to 40; t-0 on 1, 2, 3, led by 1 in epoch 5, partition epoch 7. 3 is not alive."""
    brokers = {id_: LiveBroker(BrokerRegistration(id_, ()), id_ * 10, id_ == shutting_down) for id_ in (1, 2, 4)}
    state = state or PartitionState(1, 5, (1,), 3)
    partition = Partition(ReplicaAssignment((1, 2, 3)), state, 7)
    return Cluster(1, 3, brokers, {"t": Topic(b"i" * 16, {0: partition}, **topic)})


def request(*isr: int, **fields: Any) -> AlterPartition:
    given = {"broker_id": 1, "leader_epoch": 5, "partition_epoch": 7, **fields}
    return AlterPartition(isr=tuple((id_, ANY_EPOCH) for id_ in isr), **given)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (request(1, 2), GRANTED),
        (request(1, 2, partition_epoch=8), ErrorCode.NOT_CONTROLLER),
        (request(1, 2, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (request(1, 2, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (request(1, 2, leader_epoch=4, partition_epoch=8), ErrorCode.NOT_CONTROLLER),
        (request(1, 2, partition_epoch=6), ErrorCode.INVALID_UPDATE_VERSION),
        # A repeated request, because the response was lost.
        (request(1), ErrorCode.NONE),
        (request(1, partition_epoch=6), ErrorCode.NONE),
        # Recovery from an unclean election can end, not begin.
        (request(1, recovering=True), ErrorCode.INVALID_REQUEST),
        (request(1, 2, recovering=True), ErrorCode.INVALID_REQUEST),
        # Brokers that may be in the set.
        (request(1, 3), ErrorCode.INELIGIBLE_REPLICA),
        (request(1, 4), ErrorCode.INVALID_REQUEST),
        (request(2), ErrorCode.INVALID_REQUEST),
        (request(), ErrorCode.INVALID_REQUEST),
        (request(1, 1), ErrorCode.INVALID_REQUEST),
        (request(1, 2, broker_id=2), ErrorCode.INVALID_REQUEST),
    ],
)
def test_answers(asked: AlterPartition, answer: ErrorCode | None) -> None:
    assert refusal(cluster(), KEY, asked) == answer


@pytest.mark.parametrize(
    ("epochs", "answer"),
    [((10, 20), GRANTED), ((ANY_EPOCH, 20), GRANTED), ((10, 19), ErrorCode.INELIGIBLE_REPLICA)],
)
def test_members_are_meant_in_their_present_lives(epochs: tuple[int, int], answer: ErrorCode | None) -> None:
    asked = AlterPartition(1, 5, 7, ((1, epochs[0]), (2, epochs[1])))
    assert refusal(cluster(), KEY, asked) == answer


def test_a_broker_about_to_stop_does_not_join() -> None:
    assert refusal(cluster(shutting_down=2), KEY, request(1, 2)) == ErrorCode.INELIGIBLE_REPLICA
    # But if it leads, another may be added, to succeed it.
    assert refusal(cluster(shutting_down=1), KEY, request(1, 2)) is GRANTED


def test_recovery_ends() -> None:
    recovering = cluster(PartitionState(1, 5, (1,), 3, recovering=True))
    assert refusal(recovering, KEY, request(1)) is GRANTED
    assert refusal(recovering, KEY, request(1, 2)) is GRANTED
    assert refusal(recovering, KEY, request(1, recovering=True)) == ErrorCode.NONE
    assert refusal(recovering, KEY, request(1, 2, recovering=True)) == ErrorCode.INVALID_REQUEST


def test_partitions_that_do_not_exist_are_refused() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(cluster(), ("u", 0), request(1)) == unknown
    assert refusal(cluster(), ("t", 1), request(1)) == unknown
    assert refusal(cluster(undeleted=frozenset({(0, 1)})), KEY, request(1)) == unknown


def test_the_written_state_has_the_proposed_isr() -> None:
    assert request(1, 2).state(9) == PartitionState(1, 5, (1, 2), 9)
