"""gregor.spark_jobs.source.lag: the records behind a batch, without a wait of the query for slow or lost brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import uuid_to_text
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.lag import MAX_TIMEOUT_MS, PAUSE_S, Lag, position_of
from gregor.spark_jobs.source.offsets import TOPIC_IDS, StreamOffset
from tests.spark_jobs.client.brokers import BOOTSTRAP, Brokers, Partition

ID, OTHER_ID = b"i" * 16, b"o" * 16


@pytest.fixture
def brokers() -> Brokers:
    made = Brokers()
    made.add("t", Partition(2, 10), Partition(0, 7, leader=1), topic_id=ID)
    made.add("u", Partition(0, 4))
    return made


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lag_of(brokers: Brokers, now_s: Callable[[], float] | None = None, **options: str) -> Lag:
    return Lag(BOOTSTRAP | options, lambda settings: brokers.cluster(), now_s or Seconds(), max_wait_s=60)


def behind(lag: Lag, **offsets: Any) -> int | None:
    position = position_of([offsets])
    assert position is not None
    return lag.records_behind(position, lag.extents({topic for topic in offsets if topic != TOPIC_IDS}))


def test_records_behind_a_position(brokers: Brokers) -> None:
    lag = lag_of(brokers)
    assert behind(lag, t={"0": 4, "1": 7}) == 6
    assert behind(lag, t={"0": 10, "1": 7}, u={"0": 1}) == 3
    assert behind(lag, t={"0": 11, "1": 7}) == 0  # of a leader that has not caught up yet
    assert behind(lag, t={"0": 0, "1": 7}) == 8  # the first two were deleted


def test_a_new_partition_counts_unless_the_partitions_are_given(brokers: Brokers) -> None:
    assert behind(lag_of(brokers), t={"0": 10}) == 7
    assert behind(lag_of(brokers, Assign='{"t":[0]}'), t={"0": 10}) == 0


def test_a_topic_that_was_made_again_counts_as_a_whole(brokers: Brokers) -> None:
    lag = lag_of(brokers)
    of_this, of_another = ({TOPIC_IDS: {"t": uuid_to_text(one)}, "t": {"0": 10, "1": 7}} for one in (ID, OTHER_ID))
    assert behind(lag, **of_this) == 0
    assert behind(lag, **of_another) == 15


def test_topics_that_several_sources_read_count_once() -> None:
    positions = [{"t": {"0": 5}}, {"t": {"0": 3, "1": 2}, "u": {"0": 1}}, {"logOffset": 7}, None, 12]
    position = position_of(positions)
    assert position == position_of([{"t": {"0": 3, "1": 2}, "u": {"0": 1}}])
    assert position_of([{"logOffset": 7}, None]) is None


def test_a_deleted_topic_is_unknown_and_fetched_again_after_a_pause(brokers: Brokers) -> None:
    now = Seconds()
    lag = lag_of(brokers, now)
    del brokers.topics["u"]
    assert behind(lag, u={"0": 1}) is None
    requests = len(brokers.requests)
    brokers.add("u", Partition(0, 4))
    assert behind(lag, u={"0": 1}) is None
    assert len(brokers.requests) == requests
    now.now += PAUSE_S
    assert behind(lag, u={"0": 1}) == 3


def test_a_broker_that_does_not_respond_holds_up_one_line_for_a_limited_time(brokers: Brokers) -> None:
    responds, started = threading.Event(), []

    def open_cluster(settings: ClientSettings) -> Any:
        started.append(settings)
        assert responds.wait(60)
        return brokers.cluster()

    lag = Lag(BOOTSTRAP, open_cluster, max_wait_s=0.01)
    assert lag.extents(["t"]) is None
    assert lag.extents(["t"]) is None  # without another thread
    assert len(started) == 1
    responds.set()
    for thread in [one for one in threading.enumerate() if one.name == "lag"]:
        thread.join(60)
    found = Lag(BOOTSTRAP, open_cluster, max_wait_s=60).extents(["t"])
    assert found is not None and found["t"].size == 15


def test_its_requests_end_within_seconds_and_read_committed_ends_at_the_last_stable_offset(brokers: Brokers) -> None:
    seen: list[ClientSettings] = []

    def open_cluster(settings: ClientSettings) -> Any:
        seen.append(settings)
        return brokers.cluster()

    Lag(BOOTSTRAP | {"kafka.isolation.level": "read_committed"}, open_cluster, max_wait_s=60).extents(["t"])
    [settings] = seen
    limits = settings.request_timeout_ms, settings.default_api_timeout_ms, settings.connect_timeout_ms
    assert limits == (MAX_TIMEOUT_MS,) * 3
    assert settings.read_committed


def test_a_partition_that_the_broker_refuses_is_unknown(brokers: Brokers) -> None:
    brokers.errors = {2: [int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)] * 9}
    assert behind(lag_of(brokers), t={"0": 4, "1": 7}) is None


def test_security_that_the_client_does_not_have_is_an_error() -> None:
    with pytest.raises(JobError, match="GSSAPI"):
        Lag(BOOTSTRAP | {"kafka.security.protocol": "SASL_PLAINTEXT"})


def test_nothing_is_fetched_for_a_query_without_topics(brokers: Brokers) -> None:
    assert lag_of(brokers).extents(set()) is None
    assert brokers.requests == []
    assert lag_of(brokers).records_behind(StreamOffset({}), None) is None
