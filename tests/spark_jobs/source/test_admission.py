"""gregor.spark_jobs.source.admission: the size of a micro-batch."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.source.admission import TriggerDelay, capped

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def test_a_limit_is_shared_in_proportion_and_starves_no_partition() -> None:
    assert capped({T0: 0, T1: 0, T2: 7}, {T0: 900, T1: 2, T2: 7}, 90) == {T0: 89, T1: 1, T2: 7}


def test_a_limit_above_what_is_there() -> None:
    assert capped({T0: 5, T1: 0}, {T0: 9, T1: 3}, 1000) == {T0: 9, T1: 3}


def test_an_end_that_went_back_is_kept_for_the_planner_to_report() -> None:
    assert capped({T0: 5, T1: 0}, {T0: 2, T1: 10}, 4) == {T0: 2, T1: 4}


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=5), st.integers(1, 2**45))
def test_batches_come_to_the_end(sizes: list[int], limit: int) -> None:
    latest = {TopicPartition("t", number): size for number, size in enumerate(sizes)}
    start = dict.fromkeys(latest, 0)
    end = capped(start, latest, limit)
    assert all(0 <= end[partition] <= latest[partition] for partition in latest)
    assert sum(end.values()) <= limit + len(sizes)
    assert (end == start) == (latest == start)


def test_a_batch_waits_for_records_until_the_delay_has_passed() -> None:
    delay = TriggerDelay(10, 1000)
    assert not delay.waits({T0: 0}, {T0: 1}, 0)  # the first one does not wait
    assert delay.waits({T0: 1}, {T0: 2}, 500)
    assert not delay.waits({T0: 1}, {T0: 6, T1: 5}, 600)
    assert delay.waits({T0: 6, T1: 5}, {T0: 6, T1: 5}, 1599)
    assert not delay.waits({T0: 6, T1: 5}, {T0: 6, T1: 5}, 1600)
