"""The limits on what is recorded of a group that rebalances without end."""

from gregor.coordinator.history import storms
from gregor.coordinator.history.rebalance import GroupType, Rebalance
from gregor.coordinator.history.storms import BURST, MAX_HELD, MAX_PENDING, REFILL_MS, Storms


def rebalance(epoch: int, group: str = "g") -> Rebalance:
    return Rebalance(group, GroupType.CLASSIC, epoch, 0)


def test_rebalances_are_returned_once_and_in_order() -> None:
    taken = Storms()
    for epoch in (1, 2, 3):
        taken.add(rebalance(epoch), 0)
    assert [one.epoch for one in taken.pop(0)] == [1, 2, 3]
    assert (taken.pop(0), bool(taken)) == ([], False)


def test_storm_is_cut_to_its_newest_rebalance_with_the_number_of_the_others() -> None:
    taken = Storms()
    for epoch in range(1, 101):
        taken.add(rebalance(epoch), 0)
    assert [one.epoch for one in taken.pop(0)] == list(range(1, BURST + 1))
    assert taken
    assert taken.pop(REFILL_MS - 1) == []
    (newest,) = taken.pop(REFILL_MS)
    assert (newest.epoch, newest.not_recorded) == (100, 100 - BURST - 1)


def test_newer_rebalance_takes_the_place_of_the_one_that_is_held() -> None:
    taken = Storms()
    for epoch in range(1, BURST + 2):
        taken.add(rebalance(epoch), 0)
    taken.pop(0)
    taken.add(rebalance(BURST + 2), REFILL_MS)
    (one,) = taken.pop(REFILL_MS)
    assert (one.epoch, one.not_recorded) == (BURST + 2, 1)


def test_groups_do_not_limit_each_other() -> None:
    taken = Storms()
    for epoch in range(1, 101):
        taken.add(rebalance(epoch, "storm"), 0)
    taken.add(rebalance(1, "calm"), 0)
    assert [one.group_id for one in taken.pop(0)][-1] == "calm"


def test_all_groups_together_have_a_limit() -> None:
    taken = Storms()
    for number in range(MAX_PENDING + MAX_HELD + 5):
        taken.add(rebalance(1, f"g{number}"), 0)
    assert taken.lost == 5
    assert len(taken.pop(0)) == MAX_PENDING
    assert len(taken.pop(0)) == MAX_PENDING


def test_deleted_group_is_forgotten() -> None:
    taken = Storms()
    for epoch in range(1, 101):
        taken.add(rebalance(epoch), 0)
    taken.forget("g")
    assert (taken.pop(REFILL_MS), bool(taken)) == ([], False)


def test_budgets_of_calm_groups_are_dropped() -> None:
    taken = Storms()
    for number in range(storms.MAX_BUDGETS + 1):
        taken.add(rebalance(1, f"g{number}"), 0)
        if not number % 1000:
            taken.pop(0)
    assert taken.budgets_count > storms.MAX_BUDGETS
    taken.pop(REFILL_MS)
    assert taken.budgets_count == 0
