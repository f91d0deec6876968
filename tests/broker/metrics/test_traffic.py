"""The counters of topics on the page: sums with those of deleted topics, made once, in short steps."""

from __future__ import annotations

import random

import pytest

from gregor.broker.metrics.page import Page
from gregor.broker.metrics.table import FAMILIES
from gregor.broker.metrics.traffic import TrafficLines
from gregor.protocol.turns import ITEMS_PER_STEP, Steps, run_all
from gregor.replication.traffic import TopicTraffic, Traffic

PREFIX = "kafka_server_brokertopicmetrics_"


def collected(lines: TrafficLines) -> tuple[TopicTraffic, dict[str, int]]:
    page = Page(FAMILIES)
    total = run_all(lines.collect(page))
    text = b"".join(run_all(page.render(openmetrics=False))).decode()
    series = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return total, {name.removeprefix(PREFIX): int(value) for name, _, value in series}


def test_topics_and_their_sums_are_shown_also_of_deleted_ones() -> None:
    traffic = Traffic()
    lines = TrafficLines(traffic)
    first, gone = traffic.replica_added("first"), traffic.replica_added("gone")
    first.appended(3, 300)
    gone.appended(2, 200)
    gone.isr_changed(-1)
    first.replication_bytes_out += 7
    _, series = collected(lines)
    assert series["messagesin_total"] == 5 and series['messagesin_total{topic="gone"}'] == 2
    traffic.replica_removed("gone")
    first.appended(1, 100)
    total, series = collected(lines)
    assert 'messagesin_total{topic="gone"}' not in series
    assert (series["messagesin_total"], series['messagesin_total{topic="first"}']) == (6, 4)
    assert (series["bytesin_total"], series['bytesin_total{topic="first"}']) == (600, 400)
    assert (series["replicationbytesout_total"], total.isr_shrinks) == (7, 1)


def test_topics_are_walked_once_and_in_short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = 20 * ITEMS_PER_STEP
    traffic = Traffic()
    for number in range(topics):
        traffic.replica_added(f"t{number}").messages_in = 1
    added = [0]
    add = TopicTraffic.add

    def counted(self: TopicTraffic, other: TopicTraffic) -> None:
        added[-1] += 1
        add(self, other)

    monkeypatch.setattr(TopicTraffic, "add", counted)
    lines = TrafficLines(traffic)
    for walked in (topics, ITEMS_PER_STEP):
        steps: Steps[TopicTraffic] = lines.collect(Page(FAMILIES))
        added[:] = [0]
        while True:
            try:
                next(steps)
            except StopIteration as end:
                total: TopicTraffic = end.value
                break
            added.append(0)
        assert max(added) <= ITEMS_PER_STEP + 2, "topics of one step, their sum, and the sums of the deleted ones"
        assert sum(added) == walked + topics // ITEMS_PER_STEP + 1, "of topics without traffic the sum is known"
        assert total.messages_in == sum(one.messages_in for one in traffic.topics.values())
        traffic.topics["t70"].messages_in += 1


def test_kept_lines_of_topics_are_those_that_would_be_made_anew() -> None:
    chosen, traffic = random.Random(7), Traffic()
    lines = TrafficLines(traffic)
    for _ in range(40):
        for name in [f"t{chosen.randrange(150)}" for _ in range(chosen.randrange(8))]:
            if name in traffic.topics and chosen.random() < 0.3:
                traffic.replica_removed(name)
            else:
                counters = traffic.topics.get(name) or traffic.replica_added(name)
                counter = chosen.choice(TopicTraffic.__slots__)
                setattr(counters, counter, getattr(counters, counter) + 1)
        (total, shown), (anew_total, anew) = collected(lines), collected(TrafficLines(traffic))
        assert shown == anew
        for counter in TopicTraffic.__slots__:
            assert getattr(total, counter) == getattr(anew_total, counter)
