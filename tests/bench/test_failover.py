"""Writes continue soon after a broker was killed, long before its session of a minute would end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.failover import CONTROLLER, LEADER, Killed, kills, resumed_s, sides, summary
from tests.support.mixed_cluster import GREGOR, KAFKA

SESSION_MS = 60_000
PARTITIONS = 90
SOON_S, LONGEST_S = 3.0, 30.0
"""Limits of the shortest and of each time: the other tests beside this one may need all processors for a while."""


def test_a_gap_counts_from_the_kill_to_its_end() -> None:
    steady = [0.1 * number for number in range(100)]
    late = [at for at in steady if at < 5.05 or at > 7.05]
    assert resumed_s({0: steady, 1: late}, 5.0) == pytest.approx(2.1)
    assert resumed_s({0: steady}, 5.0) <= 0.21
    with pytest.raises(ValueError, match="partition 1"):
        resumed_s({0: steady, 1: [1.0, 2.0]}, 5.0)


def test_the_table_has_each_kind_of_kill_and_the_limits() -> None:
    found = [
        Killed(LEADER, False, 0.2, 0.2, {"librdkafka": 0.5, "Java": 0.3}),
        Killed(LEADER, False, 0.4, 0.3, {"librdkafka": 0.5, "Java": 0.3}),
        Killed(CONTROLLER, True, 0.6, 0.4, {"librdkafka": 1.6, "Java": 0.6}),
    ]
    head, leader, controller, total, limits, librdkafka, java = summary(found, 0.5, 0.5)
    assert head.split()[-4:] == ["kills", "cluster", "librdkafka", "Java"]
    assert leader.split() == ["kill", "of", "a", "leader", "2", "0.30", "0.40", "0.50", "0.50", "0.30", "0.30"]
    assert controller.startswith("kill of the controller, started at once")
    assert total.split()[:4] == ["all", "3", "0.40", "0.60"]
    assert limits.endswith("missed") and summary(found, 0.5, 0.6)[4].endswith("kept")
    assert librdkafka.startswith("librdkafka adds 0.30 s") and java.startswith("Java adds 0.10 s")


def check(found: list[Killed]) -> None:
    shown = "\n".join(map(str, found))
    assert min(one.cluster_s for one in found) <= SOON_S, shown
    for one in found:
        assert max(one.cluster_s, *one.clients_s.values()) <= LONGEST_S, shown


@pytest.mark.very_slow
@pytest.mark.jvm
@pytest.mark.by_day(1, group="commands of the benchmarks")
def test_writes_continue_soon_after_a_kill(tmp_path: Path) -> None:
    with sides(tmp_path, [GREGOR] * 3, SESSION_MS) as side:
        side.start()
        check(list(kills(side, PARTITIONS, 4)))


@pytest.mark.very_slow
@pytest.mark.jvm
@pytest.mark.by_day(1, group="commands of the benchmarks")
def test_writes_continue_soon_after_a_kill_under_apache_kafkas_controller(tmp_path: Path) -> None:
    with sides(tmp_path, [KAFKA, GREGOR, GREGOR], SESSION_MS) as side:
        side.start()
        side.cluster.force_controller(0)
        check(list(kills(side, PARTITIONS, 2, victims=(1, 2))))
