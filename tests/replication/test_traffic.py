"""The counters of topics: they only grow, and their sums outlive the topics."""

from __future__ import annotations

from gregor.replication.traffic import TopicTraffic, Traffic


def test_replicas_of_a_topic_share_its_counters() -> None:
    traffic = Traffic()
    first, second = traffic.replica_added("t"), traffic.replica_added("t")
    other = traffic.replica_added("other")
    assert first is second is traffic.topics["t"]
    assert other is not first


def test_counters_of_a_deleted_topic_are_kept_in_one_sum() -> None:
    traffic = Traffic()
    counters = traffic.replica_added("t")
    traffic.replica_added("t")
    counters.messages_in += 5
    counters.isr_shrinks += 1
    traffic.replica_removed("t")
    assert "t" in traffic.topics and traffic.of_removed_topics.messages_in == 0
    traffic.replica_removed("t")
    assert "t" not in traffic.topics
    removed = traffic.of_removed_topics
    assert (removed.messages_in, removed.isr_shrinks) == (5, 1)
    again = traffic.replica_added("t")
    assert again.messages_in == 0
    again.messages_in += 2
    traffic.replica_removed("t")
    assert removed.messages_in == 7


def test_every_counter_is_added() -> None:
    one, other = TopicTraffic(), TopicTraffic()
    for number, name in enumerate(TopicTraffic.__slots__, 1):
        setattr(other, name, number)
    one.add(other)
    one.add(other)
    assert [getattr(one, name) for name in TopicTraffic.__slots__] == [
        2 * number for number in range(1, len(TopicTraffic.__slots__) + 1)
    ]
