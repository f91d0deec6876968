"""The judge of metrics finds each kind of wrong in lives that are right but for that."""

from __future__ import annotations

from datetime import datetime

import pytest

from gregor.protocol.records.batch import build_batch
from tests.cluster.calm import Counts, different
from tests.cluster.leadership import Appended, appended
from tests.cluster.metrics_judge import (
    BLIND_MS,
    DIES_WITHIN_MS,
    UNREADY_MS,
    closings,
    expired_sessions,
    judge_ends,
    judge_lives,
    judge_sessions,
    judge_sums,
)
from tests.cluster.scrapes import Life, Scrape, counters_of

SERIES = 'records_total{topic="t"}'
PAGE = """\
# HELP records_total Records
# TYPE records_total counter
records_total{topic="t"} 7.0
# TYPE kafka_server_replicamanager_leadercount gauge
kafka_server_replicamanager_leadercount 2
"""


def scrape(
    at_ms: int,
    records: float,
    *,
    is_ready: bool = True,
    leads: float = 1,
    serves: bool = True,
    is_registered: bool = False,
) -> Scrape:
    return Scrape(at_ms, at_ms + 10, is_ready, {SERIES: records}, leads, serves, is_registered)


def life(start: int, *scrapes: Scrape, ended_ms: int | None = None, broker: str = "broker-1") -> Life:
    begun_ms = scrapes[0].begun_ms - 100 if scrapes else 0
    return Life(broker, start, 100 + start, begun_ms, ended_ms, scrapes)


def test_a_page_has_counters_and_the_number_of_leaders() -> None:
    assert counters_of(PAGE) == ({SERIES: 7.0}, 2.0)


def test_counters_begin_anew_with_each_life_only() -> None:
    first, second = life(1, scrape(1000, 5), scrape(2000, 9), ended_ms=2500), life(2, scrape(3000, 1))
    assert judge_lives([first, second]) == []
    back = life(3, scrape(1000, 5), Scrape(2000, 2010, True, {}, 0, True, False), scrape(3000, 4))
    assert judge_lives([back]) == [f"counters that went back: 1 (broker-1, start 3: {SERIES} from 5 to 4)"]


def test_readiness_agrees_with_service_but_for_a_moment() -> None:
    changing = [scrape(1000, 0, serves=False), scrape(2000, 0), scrape(3000, 0, is_ready=False)]
    assert judge_lives([life(1, *changing)]) == []
    idle = [scrape(at_ms, 0, is_ready=False, leads=0) for at_ms in range(1000, 5000, 1000)]
    assert judge_lives([life(1, *idle)]) == []
    deaf = [scrape(at_ms, 0, serves=False) for at_ms in range(1000, 4000, 1000)]
    assert judge_lives([life(1, *deaf)]) == ["ready, but without service: 1 (broker-1, start 1, at 1000)"]
    leading = [scrape(at_ms, 0, is_ready=False) for at_ms in range(1000, 4000, 1000)]
    assert judge_lives([life(1, *leading)]) == ["not ready, but leading: 1 (broker-1, start 1, at 1000)"]


IDLE_TIMES_MS = range(1000, 1000 + UNREADY_MS + 3000, 1000)


def idle(at_ms: int, *, serves: bool = True, is_registered: bool = True) -> Scrape:
    return scrape(at_ms, 0, is_ready=False, leads=0, serves=serves, is_registered=is_registered)


def test_a_broker_that_is_registered_and_serves_becomes_ready() -> None:
    always = [idle(at_ms) for at_ms in IDLE_TIMES_MS]
    assert judge_lives([life(1, *always)]) == [
        "registered and serving, but not ready: 1 (broker-1, start 1, from 1000)"
    ]
    assert judge_lives([life(1, *always[: UNREADY_MS // 1000])]) == []


@pytest.mark.parametrize(
    "between",
    [
        scrape(8000, 0),
        idle(8000, serves=False),
        idle(8000, is_registered=False),
    ],
)
def test_a_broker_may_wait_anew_once_it_was_ready_deaf_or_without_a_session(between: Scrape) -> None:
    some = [between if at_ms == between.begun_ms else idle(at_ms) for at_ms in IDLE_TIMES_MS]
    assert judge_lives([life(1, *some)]) == []


def test_nothing_is_known_of_the_time_of_a_freeze() -> None:
    frozen_ms = UNREADY_MS + BLIND_MS
    some = [idle(at_ms if at_ms < 8000 else at_ms + frozen_ms) for at_ms in IDLE_TIMES_MS]
    assert judge_lives([life(1, *some)]) == []


ACKED_MS = [*range(1000, 11_000, 100)]
OWN = Appended(100, 0, 0)
"""All records of the log, appended by brokers that are scraped."""


def counted(records: float) -> list[Life]:
    return [life(1, scrape(1000, 0), scrape(11_000, records))]


def test_sums_are_those_of_the_clients_but_for_what_no_page_shows() -> None:
    assert judge_sums(counted(100), SERIES, ACKED_MS, OWN, 100) == []
    assert judge_sums(counted(99), SERIES, ACKED_MS, OWN, 100) == [
        f"{SERIES}: 99 counted and 0 unseen of 100 acknowledged"
    ]
    # After the last page of a life that ended at 6000, 30 were acknowledged until 1 s after its end.
    killed = life(1, scrape(1000, 0), scrape(4050, 31), ended_ms=6000)
    assert judge_sums([killed, life(2, scrape(11_000, 40))], SERIES, ACKED_MS, OWN, 100) == []
    assert judge_sums([killed, life(2, scrape(11_000, 38))], SERIES, ACKED_MS, OWN, 100) != []


def test_no_more_is_counted_than_the_clients_have_sent() -> None:
    """Three records were sent again during a fault, and may have been appended twice."""
    assert judge_sums(counted(103), SERIES, ACKED_MS, OWN, 103) == []
    assert judge_sums(counted(104), SERIES, ACKED_MS, OWN, 103) == [
        f"{SERIES}: 104 counted of 103 sent, of which 100 are in the log"
    ]


def test_counting_twice_during_a_fault_is_found() -> None:
    """A broker that leads from 3000 to 5000, while another is down, counts each record twice."""
    doubled = [life(1, scrape(1000, 0), scrape(3000, 20), scrape(5000, 60), scrape(11_000, 120))]
    assert judge_sums(doubled, SERIES, ACKED_MS, OWN, 103) == [
        f"{SERIES}: 120 counted of 103 sent, of which 100 are in the log"
    ]


def test_records_of_brokers_without_metrics_are_expected_there() -> None:
    mixed = Appended(50, 40, 10)
    assert judge_sums(counted(49), SERIES, ACKED_MS, mixed, 103) == [
        f"{SERIES}: 49 counted and 0 unseen of 50 acknowledged"
    ]
    assert judge_sums(counted(50), SERIES, ACKED_MS, mixed, 103) == []
    # Those of an epoch whose leader is unknown, and the repeated ones, may have been appended anywhere.
    assert judge_sums(counted(63), SERIES, ACKED_MS, mixed, 103) == []
    assert judge_sums(counted(64), SERIES, ACKED_MS, mixed, 103) == [
        f"{SERIES}: 64 counted of 63 sent, of which 60 are in the log"
    ]


def test_records_belong_to_the_leader_of_their_epoch() -> None:
    some = [(None, b"x")]
    log = {0: b"".join(build_batch(some * records, leader_epoch=epoch) for records, epoch in ((3, 1), (5, 2), (7, 3)))}
    leaders = {(0, 1): 0, (0, 2): 1, (1, 3): 1}
    assert appended(log, leaders, {0}) == Appended(observed=5, others=3, unknown=7)
    assert appended(log, leaders, ()) == Appended(observed=15, others=0, unknown=0)


def test_without_faults_a_broker_counts_what_its_client_counts() -> None:
    counts = Counts(60, 900, 1000)
    assert different("broker-1", counts, counts.series()) == []
    assert different("broker-1", counts, Counts(60, 901, 1000).series()) == [
        'without faults broker-1 counted 901 in kafka_server_brokertopicmetrics_bytesin_total{topic="calm"}, '
        "its client 900"
    ]
    assert len(different("broker-1", counts, {})) == len(counts)


WATCHER = "[{time}] WARNING The broker (pid 101) has ended without closing its ZooKeeper session 0x1; the session is"
RESTARTED = "[{time}] INFO Closed the ZooKeeper session {session}, which this broker's last process has left open"
OPENED = "Connected to ZooKeeper, session {}"
RIGHT = {("broker-1", 1): OPENED.format("0x1"), ("broker-1", 2): OPENED.format("0x2"), ("broker-2", 1): ""}
DEATH_MS = 10_000
LIVES = [life(1, ended_ms=DEATH_MS), life(2), life(1, broker="broker-2")]


@pytest.mark.parametrize("behind_ms", [-1000, -100, 0, 5000])
@pytest.mark.parametrize(
    ("place", "line", "right"),
    [
        (("broker-1", 1), WATCHER, True),
        (("broker-1", 2), RESTARTED.replace("{session}", "0x1"), True),
        (("broker-1", 2), WATCHER.replace("101", "102"), False),
        (("broker-1", 1), WATCHER.replace("0x1", "0x2"), False),
        (("broker-1", 2), RESTARTED.replace("{session}", "0x2"), False),
        (("broker-2", 1), RESTARTED.replace("{session}", "0x1"), False),
    ],
)
def test_only_sessions_of_the_dead_are_closed_from_outside(
    place: tuple[str, int], line: str, right: bool, behind_ms: int
) -> None:
    """The end of a process is noted a moment after it, so a closing may come before the note of the death."""
    at_ms = DEATH_MS + behind_ms
    time = datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
    [one] = closed = closings(LIVES, RIGHT | {place: f"{RIGHT[place]}\n{line.format(time=time)}\n"})
    assert one.at_ms == at_ms
    wrong = [] if right and behind_ms >= -DIES_WITHIN_MS else [f"{one.session} by {one.by} at {at_ms}"]
    assert judge_sessions(closed) == [
        f"sessions of living brokers that were closed from outside: 1 ({text})" for text in wrong
    ]


EXPIRY = (
    "10:44:21.293 [SessionTracker] INFO  org.apache.zookeeper.server.ZooKeeperServer - Expiring session {}, timeout of"
)


def test_a_living_brokers_session_ends_at_its_timeout_only() -> None:
    """The last session of a process may end with it; an earlier one is known to have ended at its timeout."""
    again = "\n".join([OPENED.format("0x1"), "A new ZooKeeper session, 0x1f has begun", "A new ZooKeeper session, 0x2"])
    printed = RIGHT | {("broker-1", 1): again}
    log = "\n".join(f"{EXPIRY.format(session)} 6000ms exceeded" for session in ("0x1", "0x1f", "0x3"))
    assert expired_sessions(log) == {"0x1", "0x1f", "0x3"}
    assert judge_ends(LIVES, printed, expired_sessions(log)) == []
    assert judge_ends(LIVES, printed, {"0x1", "0x3"}) == [
        "sessions of living brokers that ended before their timeout: 1 (0x1f of broker-1, start 1)"
    ]
