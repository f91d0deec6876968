"""The counters of topics: they only grow, and their sums outlive the topics."""

from __future__ import annotations

from gregor.replication.traffic import Traffic


def test_replicas_of_a_topic_share_its_counters() -> None:
    traffic = Traffic()
    first, second = traffic.replica_added("t"), traffic.replica_added("t")
    other = traffic.replica_added("other")
    assert first is second is traffic.topics["t"]
    assert other is not first


def test_sums_contain_deleted_topics_once() -> None:
    traffic = Traffic()
    counters = traffic.replica_added("t")
    traffic.replica_added("t")
    counters.messages_in += 5
    counters.isr_shrinks += 1
    traffic.replica_removed("t")
    assert "t" in traffic.topics and traffic.total().messages_in == 5
    traffic.replica_removed("t")
    assert "t" not in traffic.topics
    assert (traffic.total().messages_in, traffic.total().isr_shrinks) == (5, 1)
    again = traffic.replica_added("t")
    assert again.messages_in == 0
    again.messages_in += 2
    assert traffic.total().messages_in == 7
