"""PartitionSet: as a set of partitions, and fast where a transaction has thousands of them."""

from hypothesis import given
from hypothesis import strategies as st

from gregor.coordinator.txn.partitions import NO_PARTITIONS, PartitionSet
from gregor.protocol.topic_partition import TopicPartition

PARTITIONS = st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 9)))


@given(PARTITIONS, PARTITIONS)
def test_it_behaves_as_a_set(first: frozenset[TopicPartition], second: frozenset[TopicPartition]) -> None:
    one = NO_PARTITIONS.union(first)
    both = one.union(second)
    assert (one, both) == (first, first | second)
    assert (len(both), bool(both)) == (len(first | second), bool(first | second))
    assert both.issuperset(second) and one.issuperset(second) == first.issuperset(second)
    assert (one == both) == (first == first | second)
    assert all((partition in one) == (partition in first) for partition in second)
    found = [(topic, number) for topic, numbers in both.by_topic() for number in numbers]
    assert found == sorted(first | second)
    assert PartitionSet.of(both.by_topic()) == both
    assert PartitionSet.of((topic, [number]) for topic, number in both) == both


def test_an_addition_leaves_what_was_there() -> None:
    before = PartitionSet.of([("a", [3, 1]), ("b", []), ("a", [2])])
    assert list(before.by_topic()) == [("a", [1, 2, 3])]
    after = before.union([TopicPartition("b", 1)])
    assert TopicPartition("b", 1) not in before and TopicPartition("b", 1) in after
