"""The options of a run: the kinds of its brokers, and the plan of its faults."""

from __future__ import annotations

import itertools

import pytest

from tests.cluster.chaos import arguments, broker_kinds
from tests.cluster.faults import KINDS, kinds_of, plan
from tests.cluster.servers import GREGOR, KAFKA


def test_a_plan_is_that_of_its_seed_and_has_every_kind() -> None:
    first = list(itertools.islice(plan(7, 3), 2 * len(KINDS)))
    assert first == list(itertools.islice(plan(7, 3), 2 * len(KINDS)))
    assert first != list(itertools.islice(plan(8, 3), 2 * len(KINDS)))
    assert [fault.kind for fault in first[: len(KINDS)]] != list(KINDS)
    assert {fault.kind for fault in first[: len(KINDS)]} == set(KINDS)
    for fault in first:
        assert fault.victim != fault.other
        assert KINDS[fault.kind].shortest_s <= fault.hold_s <= KINDS[fault.kind].longest_s


def test_one_broker_has_no_fault_that_needs_another() -> None:
    possible = kinds_of(1)
    assert {"kill", "pause", "full disk", "rolling restart", "cut a broker from clients"} <= set(possible)
    assert not {"cut two brokers", "cut the power"} & set(possible)
    faults = list(itertools.islice(plan(7, 1), len(possible)))
    assert {fault.kind for fault in faults} == set(possible)
    assert {(fault.victim, fault.other > 0) for fault in faults} == {(0, True)}


def test_a_mixed_cluster_has_one_broker_of_apache_kafka_another_one_with_another_seed() -> None:
    assert [broker_kinds("mixed", 3, seed).index(KAFKA) for seed in (3, 4, 5)] == [0, 1, 2]
    assert broker_kinds("mixed", 3, 3) == [KAFKA, GREGOR, GREGOR]
    assert broker_kinds(GREGOR, 1, 3) == [GREGOR]
    assert broker_kinds(KAFKA, 3, 3) == [KAFKA, KAFKA, KAFKA]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--count", "1", "--kinds", "kill,cut two brokers"],
            "--kinds: cut two brokers: with --count 1, choose from: kill",
        ),
        (["--kinds", "kil"], "--kinds: kil: with --count 3, choose from: kill"),
        (["--count", "1", "--brokers", "mixed"], "leave out --count 1"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        arguments(words)
    assert reason in capsys.readouterr().err
