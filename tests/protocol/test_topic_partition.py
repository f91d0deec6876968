"""gregor.protocol.topic_partition: one name of a partition, interchangeable with the plain tuple."""

from gregor.protocol.topic_partition import TopicPartition


def test_it_finds_what_is_kept_by_the_plain_tuple_and_the_other_way_round() -> None:
    named = TopicPartition("topic", 3)
    assert {("topic", 3): "kept"}[named] == {named: "kept"}["topic", 3] == "kept"
    assert sorted([TopicPartition("b", 0), ("a", 9), TopicPartition("a", 10)]) == [("a", 9), ("a", 10), ("b", 0)]


def test_its_parts_have_kafkas_names() -> None:
    named = TopicPartition("topic", 3)
    assert (named.topic, named.partition) == named
    assert "{}-{}".format(*named) == "topic-3"
