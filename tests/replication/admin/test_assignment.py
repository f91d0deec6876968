"""Assignments: evenness in all directions, Kafka's figures, and refusals of impossible ones."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.assignment import check_manual, spread


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


# Brokers with their racks, partitions, replication factor, start index, first partition; and what Apache Kafka 3.9.1's
# AdminUtils.assignReplicasToBrokers makes of it.
KAFKAS = [
    ("0:r1,1:r3,2:r3,3:r2,4:r2,5:r1", 7, 3, 0, -1, "0,3,1 3,1,5 1,5,4 5,4,2 4,2,0 2,0,3 0,4,2"),
    ("0:r1,1:r3,2:r3,3:r2,4:r2,5:r1", 12, 2, 2, -1, "1,4 5,2 4,0 2,3 0,1 3,5 1,3 5,1 4,5 2,4 0,2 3,0"),
    ("0:r1,1:r3,2:r3,3:r2,4:r2,5:r1", 6, 3, 4, 12, "4,2,0 2,0,3 0,3,1 3,1,5 1,5,4 5,4,2"),
    ("0:r1,1:r3,2:r3,3:r2,4:r2,5:r1", 6, 5, 1, 0, "3,2,0,1,5 1,0,3,5,4 5,3,1,4,2 4,1,5,2,0 2,5,4,0,3 0,4,2,3,1"),
    ("0:r1,1:r3,2:r3,3:r2,4:r2,5:r1", 5, 6, 3, 0, "5,1,4,2,0,3 4,5,2,0,3,1 2,4,0,3,1,5 0,2,3,1,5,4 3,0,1,5,4,2"),
    ("0:r1,1:r1,2:r1,3:r2,4:r3", 10, 3, 0, -1, "0,3,4 3,4,1 4,1,3 1,3,4 2,3,4 0,3,4 3,0,4 4,3,1 1,4,3 2,3,4"),
    ("0:r1,1:r1,2:r1,3:r2,4:r3", 10, 2, 3, 5, "1,3 2,3 0,3 3,4 4,1 1,4 2,3 0,3 3,0 4,3"),
    ("0:r1,1:r1,2:r1,3:r2,4:r3", 6, 4, 1, 0, "3,0,4,1 4,3,1,2 1,4,3,2 2,3,4,1 0,3,4,1 3,2,4,1"),
    ("1:a,2:b", 4, 2, 0, -1, "1,2 2,1 1,2 2,1"),
    ("1:a", 3, 1, 0, -1, "1 1 1"),
    ("1:a,2:a,3:a", 6, 2, 1, 0, "2,1 3,2 1,3 2,3 3,1 1,2"),
    ("10:z,20:a,30:m,40:z", 8, 3, 1, 3, "20,30,10 30,10,20 10,20,30 40,20,30 20,30,10 30,10,20 10,20,30 40,20,30"),
    ("1:a,2:b", 4, 1, 1, 6, "2 1 2 1"),
    ("3,7,11,15", 9, 3, 2, 0, "11,7,15 15,11,3 3,15,7 7,3,11 11,15,3 15,3,7 3,7,11 7,11,15 11,3,7"),
    ("3,7,11,15", 5, 4, 1, 9, "11,3,7,15 15,7,11,3 3,11,15,7 7,3,11,15 11,7,15,3"),
    ("1,2", 5, 2, 0, 7, "2,1 1,2 2,1 1,2 2,1"),
]


@pytest.mark.parametrize(("brokers", "partitions", "factor", "start", "first", "replicas"), KAFKAS)
def test_kafkas_figures(brokers: str, partitions: int, factor: int, start: int, first: int, replicas: str) -> None:
    racks = {int(id_): rack or None for id_, _, rack in (text.partition(":") for text in brokers.split(","))}
    made = spread(sorted(racks), partitions, factor, racks=racks, start_index=start, start_partition=max(0, first))
    assert list(made) == list(range(max(0, first), max(0, first) + partitions))
    assert " ".join(",".join(map(str, ids)) for ids in made.values()) == replicas


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_rack_gets_a_second_replica_before_each_has_one(data: st.DataObject) -> None:
    names = st.sampled_from(["a", "b", "c"])
    racks = data.draw(st.dictionaries(st.integers(0, 9), names, min_size=1, max_size=8))
    factor = data.draw(st.integers(1, len(racks)))
    for replicas in spread(sorted(racks), 20, factor, racks=racks).values():
        assert len(set(replicas)) == factor
        assert len({racks[id_] for id_ in replicas}) == min(factor, len(set(racks.values())))


def test_racks_of_some_brokers_only() -> None:
    with pytest.raises(KafkaError, match=r"set broker.rack of \[2\]") as error:
        spread([1, 2, 3], 2, 2, racks={1: "a", 2: None, 3: "b"})
    assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


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
