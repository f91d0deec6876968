"""Assignments: evenness in all directions, Kafka's figures, and refusals of impossible ones."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ErrorCode, KafkaError
from replication.assignment import check_manual, spread


def test_the_figure_of_kafkas_documentation() -> None:
    # Ten partitions, three replicas, five brokers, beginning at the first broker without an extra distance.
    assert spread([0, 1, 2, 3, 4], 10, 3, start_index=0) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_broker_leads_and_holds_its_share(data: st.DataObject) -> None:
    brokers = sorted(data.draw(st.sets(st.integers(0, 50), min_size=1, max_size=6)))
    factor = data.draw(st.integers(1, len(brokers)))
    rounds = data.draw(st.integers(1, 4))
    assignment = spread(brokers, rounds * len(brokers), factor)
    assert sorted(assignment) == list(range(rounds * len(brokers)))
    assert all(len(set(replicas)) == factor for replicas in assignment.values())
    assert Counter(replicas[0] for replicas in assignment.values()) == dict.fromkeys(brokers, rounds)
    held = Counter(broker for replicas in assignment.values() for broker in replicas)
    assert held == dict.fromkeys(brokers, rounds * factor)


def test_more_partitions_go_on_where_the_first_began() -> None:
    brokers = [3, 5, 8]
    whole = spread(brokers, 9, 2, start_index=1)
    assert {**spread(brokers, 9, 2, start_index=1, start_partition=9)}.keys() == set(range(9, 18))
    start = brokers.index(whole[0][0])
    rest = spread(brokers, 5, 2, start_partition=4, start_index=start)
    assert [replicas[0] for replicas in rest.values()] == [whole[index][0] for index in range(4, 9)]


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "code"),
    [
        ([1], 0, 1, ErrorCode.INVALID_PARTITIONS),
        ([1], -5, 1, ErrorCode.INVALID_PARTITIONS),
        ([1], 10_001, 1, ErrorCode.POLICY_VIOLATION),
        ([1], 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([1], 1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([], 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_refused_numbers(brokers: list[int], partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as error:
        spread(brokers, partitions, factor)
    assert error.value.code is code


def test_by_hand() -> None:
    assert check_manual({1: [2, 1], 0: [1, 2]}, [1, 2]) == {0: (1, 2), 1: (2, 1)}
    assert check_manual({3: [1]}, [1], start_partition=3) == {3: (1,)}
    impossible: list[tuple[dict[int, list[int]], int]] = [
        ({1: [1]}, 0),
        ({0: [1], 2: [1]}, 0),
        ({0: [1]}, 1),
        ({0: [1], 1: [1, 2]}, 0),
        ({0: []}, 0),
        ({0: [1, 1]}, 0),
        ({0: [3]}, 0),
    ]
    for assignments, start in impossible:
        with pytest.raises(KafkaError) as error:
            check_manual(assignments, [1, 2], start_partition=start)
        assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
