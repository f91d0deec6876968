"""The invariants of what the brokers of a run showed and logged of themselves. Pure: lives and lines in, sentences out.

- a counter never goes back within one life of a broker;
- a broker that is ready serves, one that is not leads nothing, and one that is registered and serves becomes ready;
- the records that all lives of all brokers counted are no fewer than the producers got acknowledged, but for those
  after the last scrape of a life, and no more than the producers sent: more than are in the log only where a producer
  has repeated some;
- no session of a living broker is closed, from outside or by itself: it ends at its timeout.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from tests.cluster.judge import rule
from tests.cluster.leadership import Appended
from tests.cluster.scrapes import Life, Scrape
from tests.cluster.servers import SESSION_MS

STEADY = 3
"""A state is judged where so many scrapes in a row have it: it may change between the two requests of one."""
UNREADY_MS = 2 * SESSION_MS
"""A broker that has registered is ready within this time, even where the controller has just frozen: the next one is
elected when its session has ended, and informs the brokers."""
BLIND_MS = 5000
"""Scrapes with more than this between them are of two states: nothing is known of the time between."""
AROUND_MS = 1000
"""An acknowledgement reaches a client, and is counted here, at most this much later than the append."""
DIES_WITHIN_MS = 500
"""The end of a process that was not killed by the run is noted a moment after it; a watcher notices it at once."""
_TIME = r"(?m)^\[([-\d]+ [:\d]+,\d{3})\] [^\n]*?"
_WATCHER = re.compile(
    _TIME + r"The broker \(pid (\d+)\) has ended without closing its ZooKeeper session (0x[0-9a-f]+); the"
)
_RESTARTED = re.compile(
    _TIME + r"Closed the ZooKeeper session (0x[0-9a-f]+), which this broker's last process has left open"
)
_EXPIRED = re.compile(r"ZooKeeperServer - Expiring session (0x[0-9a-f]+), timeout of ")
_OPENED = re.compile(r"(?:Connected to ZooKeeper, session|A new ZooKeeper session,) (0x[0-9a-f]+)")


def judge_lives(lives: Sequence[Life]) -> list[str]:
    """Return the rules about metrics and readiness that were broken."""
    found = rule("counters that went back", (text for life in lives for text in _went_back(life)))
    found += rule("ready, but without service", (text for life in lives for text in _ready_without_service(life)))
    found += rule("not ready, but leading", (text for life in lives for text in _leading_unready(life)))
    return found + rule(
        "registered and serving, but not ready", (text for life in lives for text in _kept_unready(life))
    )


def judge_sums(lives: Sequence[Life], series: str, acked_ms: Sequence[int], log: Appended, sent: int) -> list[str]:
    """Compare the sum of a counter of records over all lives with the times of the acknowledgements, and with the
    number of records that the producers report to have sent, each repetition included. Those that a broker without
    metrics has appended were sent to that one, and count there."""
    counted = sum(_last(life, series) for life in lives)
    unseen = sum(_within(acked_ms, _last_ms(life), life.ended_ms + AROUND_MS) for life in lives if life.ended_ms)
    acked = len(acked_ms) - log.others - log.unknown
    if counted + unseen < acked:
        return [f"{series}: {counted:.0f} counted and {unseen} unseen of {acked} acknowledged"]
    if counted > sent - log.others:
        in_log = log.observed + log.unknown
        return [f"{series}: {counted:.0f} counted of {sent - log.others} sent, of which {in_log} are in the log"]
    return []


class Closing(NamedTuple):
    """A session that was closed by another process than its broker, and by which one."""

    session: str
    at_ms: int
    owner: Life | None
    """None: of no life whose session that process may close."""
    by: str


def closings(lives: Sequence[Life], printed: Mapping[tuple[str, int], str]) -> list[Closing]:
    """Return the sessions that were closed from outside. `printed`: (broker, start) -> the lines of that life, and of
    its session watcher. A watcher may close the session of its own broker, a broker that of an earlier life."""
    opened = {
        session: life for life in lives for session in _OPENED.findall(printed.get((life.broker, life.start), ""))
    }
    found = []
    for (broker, start), text in printed.items():
        own = [life for life in lives if life.broker == broker]
        for time, pid, session in _WATCHER.findall(text):
            watched = [life for life in own if life.pid == int(pid)]
            found.append(_closing(session, time, watched, opened, f"the watcher of process {pid} of {broker}"))
        for time, session in _RESTARTED.findall(text):
            earlier = [life for life in own if life.start < start]
            found.append(_closing(session, time, earlier, opened, f"{broker}, start {start}"))
    return found


def _closing(session: str, time: str, may: Sequence[Life], opened: Mapping[str, Life], by: str) -> Closing:
    owner = opened.get(session, may[-1] if may else None)
    at_ms = int(datetime.strptime(time, "%Y-%m-%d %H:%M:%S,%f").timestamp() * 1000)
    return Closing(session, at_ms, owner if owner in may else None, by)


def judge_sessions(closed: Sequence[Closing]) -> list[str]:
    """Check that each of them belonged to a process that was dead at that moment."""
    return rule(
        "sessions of living brokers that were closed from outside",
        (f"{one.session} by {one.by} at {one.at_ms}" for one in closed if not _was_dead(one)),
    )


def judge_ends(lives: Sequence[Life], printed: Mapping[tuple[str, int], str], expired: Collection[str]) -> list[str]:
    """Check that each session after which a process has opened another one ended at its timeout: that it is among those
    that ZooKeeper's own log calls expired."""
    return rule(
        "sessions of living brokers that ended before their timeout",
        (
            f"{session} of {life.broker}, start {life.start}"
            for life in lives
            for session in _OPENED.findall(printed.get((life.broker, life.start), ""))[:-1]
            if session not in expired
        ),
    )


def expired_sessions(log: str) -> set[str]:
    """Return the sessions that ended at their timeout, from the log of ZooKeeper."""
    return set(_EXPIRED.findall(log))


def _was_dead(one: Closing) -> bool:
    ended_ms = None if one.owner is None else one.owner.ended_ms
    return ended_ms is not None and ended_ms <= one.at_ms + DIES_WITHIN_MS


def _went_back(life: Life) -> Iterable[str]:
    highest: dict[str, float] = {}
    for scrape in life.scrapes:
        for series, value in scrape.counters.items():
            if value < highest.get(series, 0.0):
                yield f"{life.broker}, start {life.start}: {series} from {highest[series]:g} to {value:g}"
            highest[series] = max(value, highest.get(series, 0.0))


def _ready_without_service(life: Life) -> Iterable[str]:
    for some in _runs(life):
        if all(scrape.is_ready for scrape in some) and not any(scrape.serves for scrape in some):
            yield f"{life.broker}, start {life.start}, at {some[0].begun_ms}"


def _leading_unready(life: Life) -> Iterable[str]:
    for some in _runs(life):
        if not any(scrape.is_ready for scrape in some) and all(scrape.leads for scrape in some):
            yield f"{life.broker}, start {life.start}, at {some[0].begun_ms}"


def _kept_unready(life: Life) -> Iterable[str]:
    since_ms: int | None = None
    seen_ms = life.begun_ms
    for scrape in life.scrapes:
        if scrape.is_ready or not scrape.serves or not scrape.is_registered:
            since_ms = None
        elif since_ms is None or scrape.begun_ms - seen_ms > BLIND_MS:
            since_ms = scrape.begun_ms
        elif seen_ms - since_ms <= UNREADY_MS < scrape.ended_ms - since_ms:
            yield f"{life.broker}, start {life.start}, from {since_ms}"
        seen_ms = scrape.ended_ms


def _runs(life: Life) -> Iterable[Sequence[Scrape]]:
    return (life.scrapes[first : first + STEADY] for first in range(len(life.scrapes) - STEADY + 1))


def _last(life: Life, series: str) -> float:
    return max((scrape.counters.get(series, 0.0) for scrape in life.scrapes), default=0.0)


def _last_ms(life: Life) -> int:
    """Return when the last page was requested that shows the counters; the begin of a life without any."""
    return max((scrape.begun_ms for scrape in life.scrapes if scrape.counters), default=life.begun_ms)


def _within(times_ms: Sequence[int], begin_ms: int, end_ms: int) -> int:
    return sum(begin_ms <= at_ms <= end_ms for at_ms in times_ms)
