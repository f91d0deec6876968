"""Elections, case by case."""

from __future__ import annotations

import pytest

from gregor.replication.controller.election import (
    elect_after_failures,
    elect_first,
    elect_for_shutdown,
    elect_preferred,
)
from gregor.replication.store.nodes import PartitionState


def state(leader: int, *isr: int, epoch: int = 4, recovering: bool = False) -> PartitionState:
    return PartitionState(leader, epoch, isr, 1, recovering)


@pytest.mark.parametrize(
    ("electable", "expected"),
    [
        ([1, 2, 3], PartitionState(1, 0, (1, 2, 3), 9)),
        ([2, 3], PartitionState(2, 0, (2, 3), 9)),
        ([], None),
    ],
)
def test_first(electable: list[int], expected: PartitionState | None) -> None:
    assert elect_first((1, 2, 3), electable, 9) == expected


@pytest.mark.parametrize(
    ("before", "alive", "unclean", "leader", "isr"),
    [
        # the leader lives
        (state(1, 1, 2, 3), [1, 2, 3], False, None, None),
        (state(1, 1, 2, 3), [1, 3], False, 1, (1, 3)),
        (state(1, 1), [1, 2, 3], False, None, None),
        # it died; order of assignment decides, not of the ISR
        (state(1, 1, 3, 2), [2, 3], False, 2, (3, 2)),
        (state(1, 1, 3), [2, 3], False, 3, (3,)),
        # no replica in sync is left
        (state(1, 1), [2, 3], False, -1, (1,)),
        (state(1, 1), [2, 3], True, 2, (2,)),
        (state(1, 1, 2), [], True, -1, (2,)),
        # no leader before
        (state(-1, 1), [2, 3], False, None, None),
        (state(-1, 1), [2, 1], False, 1, (1,)),
        (state(-1, 1), [3], True, 3, (3,)),
    ],
)
def test_after_failures(
    before: PartitionState, alive: list[int], unclean: bool, leader: int | None, isr: tuple[int, ...] | None
) -> None:
    after = elect_after_failures((1, 2, 3), before, alive, alive, unclean, 9)
    if leader is None:
        assert after is None
    else:
        assert after is not None
        assert (after.leader, after.isr, after.leader_epoch, after.controller_epoch) == (leader, isr, 5, 9)
        assert after.recovering is (leader != -1 and leader not in before.isr)


def test_a_broker_shutting_down_keeps_its_lead_but_gets_none() -> None:
    assert elect_after_failures((1, 2), state(1, 1, 2), [1, 2], [2], False, 9) is None
    after = elect_after_failures((1, 2), state(1, 1, 2), [2], [], False, 9)
    assert after is not None and (after.leader, after.isr) == (-1, (2,))


def test_recovery_is_remembered_through_clean_elections() -> None:
    after = elect_after_failures((1, 2), state(1, 1, 2, recovering=True), [2], [2], False, 9)
    assert after is not None and after.recovering


@pytest.mark.parametrize(
    ("before", "electable", "leader"),
    [
        (state(2, 2, 1), [1, 2], 1),
        (state(1, 2, 1), [1, 2], None),
        (state(2, 2), [1, 2], None),
        (state(2, 2, 1), [2], None),
    ],
)
def test_preferred(before: PartitionState, electable: list[int], leader: int | None) -> None:
    after = elect_preferred((1, 2), before, electable, 9)
    assert (None if after is None else after.leader) == leader
    if after is not None:
        assert (after.isr, after.leader_epoch) == (before.isr, 5)


@pytest.mark.parametrize(
    ("replicas", "before", "electable", "leader", "isr"),
    [
        ((1, 2), state(1, 1, 2), [2], 2, (2,)),
        ((1, 2), state(2, 2, 1), [2], 2, (2,)),
        ((1, 2, 3), state(1, 1, 3), [2, 3], 3, (3,)),
        # no other replica could lead
        ((1, 2), state(1, 1), [2], None, None),
        ((1,), state(1, 1), [], None, None),
        # not concerned
        ((1, 2), state(2, 2), [2], None, None),
    ],
)
def test_shutdown(
    replicas: tuple[int, ...],
    before: PartitionState,
    electable: list[int],
    leader: int | None,
    isr: tuple[int, ...] | None,
) -> None:
    after = elect_for_shutdown(replicas, before, 1, electable, 9)
    if leader is None:
        assert after is None
    else:
        assert after is not None and (after.leader, after.isr, after.leader_epoch) == (leader, isr, 5)
