"""The invariants of what the brokers of a run showed and logged of themselves. Pure: lives and lines in, sentences out.

- a counter never goes back within one life of a broker;
- a broker that is ready serves, and one that is not leads nothing;
- the records that all lives of all brokers counted are those that the producers got acknowledged, but for those after
  the last scrape of a life, and those that a fault made producers send again;
- no session of a living broker is closed from outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tests.cluster.judge import rule
from tests.cluster.scrapes import Life, Scrape

STEADY = 3
"""A state is judged where so many scrapes in a row have it: it may change between the two requests of one."""
AROUND_MS = 1000
"""An acknowledgement reaches a client, and is counted here, at most this much later than the append."""
_WATCHER = re.compile(r"The broker \(pid (\d+)\) has ended without closing its ZooKeeper session (0x[0-9a-f]+); the")
_RESTARTED = re.compile(r"Closed the ZooKeeper session (0x[0-9a-f]+), which this broker's last process has left open")
_OPENED = re.compile(r"(?:Connected to ZooKeeper, session|A new ZooKeeper session,) (0x[0-9a-f]+)")


def judge_lives(lives: Sequence[Life]) -> list[str]:
    """Return the rules about metrics and readiness that were broken."""
    found = rule("counters that went back", (text for life in lives for text in _went_back(life)))
    found += rule("ready, but without service", (text for life in lives for text in _ready_without_service(life)))
    return found + rule("not ready, but leading", (text for life in lives for text in _leading_unready(life)))


def judge_sums(
    lives: Sequence[Life], series: str, acked_ms: Sequence[int], in_log: int, faults_ms: Sequence[tuple[int, int]]
) -> list[str]:
    """Compare the sum of a counter of records over all lives with the times of the acknowledgements, and with the
    number of records in the log. `faults_ms`: from the begin of each fault until the cluster was whole again."""
    counted = sum(_last(life, series) for life in lives)
    unseen = sum(_within(acked_ms, _last_ms(life), life.ended_ms + AROUND_MS) for life in lives if life.ended_ms)
    again = sum(_within(acked_ms, begun - AROUND_MS, whole + AROUND_MS) for begun, whole in faults_ms)
    if counted + unseen < len(acked_ms):
        return [f"{series}: {counted:.0f} counted and {unseen} unseen of {len(acked_ms)} acknowledged"]
    if counted > in_log + again:
        return [f"{series}: {counted:.0f} counted, {in_log} in the log, and {again} that may have been sent again"]
    return []


def judge_sessions(lives: Sequence[Life], printed: Mapping[tuple[str, int], str]) -> list[str]:
    """Check each session that was closed from outside. `printed`: (broker, start) -> the lines of that life, and of its
    session watcher."""
    opened = {
        session: life for life in lives for session in _OPENED.findall(printed.get((life.broker, life.start), ""))
    }
    return rule("sessions that were closed from outside", _closed_alive(lives, printed, opened))


def _closed_alive(
    lives: Sequence[Life], printed: Mapping[tuple[str, int], str], opened: Mapping[str, Life]
) -> Iterable[str]:
    pids = {(life.broker, life.pid): life for life in lives}
    for (broker, start), text in printed.items():
        for pid, session in _WATCHER.findall(text):
            life = pids.get((broker, int(pid)))
            if life is None or life.ended_ms is None or opened.get(session) not in (None, life):
                yield f"{session} of {broker} by the watcher of process {pid}"
        for session in _RESTARTED.findall(text):
            owner = opened.get(session)
            if owner is not None and (owner.broker, owner.start < start) != (broker, True):
                yield f"{session} of {owner.broker}, start {owner.start}, by {broker}, start {start}"


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


def _runs(life: Life) -> Iterable[Sequence[Scrape]]:
    return (life.scrapes[first : first + STEADY] for first in range(len(life.scrapes) - STEADY + 1))


def _last(life: Life, series: str) -> float:
    return max((scrape.counters.get(series, 0.0) for scrape in life.scrapes), default=0.0)


def _last_ms(life: Life) -> int:
    """Return when the last page was requested that shows the counters; the begin of a life without any."""
    return max((scrape.begun_ms for scrape in life.scrapes if scrape.counters), default=life.begun_ms)


def _within(times_ms: Sequence[int], begin_ms: int, end_ms: int) -> int:
    return sum(begin_ms <= at_ms <= end_ms for at_ms in times_ms)
