"""Waiting for the controller: no item is checked again once its predicate was true."""

from __future__ import annotations

from gregor.replication.admin.controller_wait import all_of


def test_each_item_is_checked_until_it_holds_once() -> None:
    done: set[int] = set()
    checked: list[int] = []

    def holds(item: int) -> bool:
        checked.append(item)
        return item in done

    all_hold = all_of([1, 2, 3], holds)
    assert not all_hold()
    done |= {1, 2}
    assert not all_hold()
    done.clear()
    assert not all_hold()
    done.add(3)
    assert all_hold()
    assert all_hold()
    assert checked == [1, 1, 2, 3, 3, 3]
