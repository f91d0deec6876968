"""Work in slices, done at once; and a dict that is walked while it changes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from gregor.protocol.turns import Steps, WalkableDict, run_all


def test_results_of_calls_are_sent_back_in() -> None:
    def work() -> Steps[list[int]]:
        first = yield lambda: 1
        yield None
        second = yield lambda: first + 1
        return [first, second]

    assert run_all(work()) == [1, 2]


def test_errors_of_calls_are_raised_where_the_call_was_asked_for() -> None:
    def work(forgiving: bool) -> Steps[str]:
        try:
            yield lambda: int("x")
        except ValueError:
            if forgiving:
                return "forgiven"
            raise
        return "no error"

    assert run_all(work(True)) == "forgiven"
    with pytest.raises(ValueError, match="invalid literal"):
        run_all(work(False))


# WalkableDict


def filled(count: int) -> WalkableDict[int, str]:
    return WalkableDict((key, f"value {key}") for key in range(count))


def test_a_walk_visits_what_was_there_when_it_began() -> None:
    table = filled(3)
    walk = table.walk()
    assert next(walk) == (0, "value 0")
    table[3] = "added"
    assert list(walk) == [(1, "value 1"), (2, "value 2")]
    assert list(table.walk()) == list(table.items())


def test_values_come_in_blocks() -> None:
    table = filled(7)
    del table[2]
    blocks = table.walk_blocks(2)
    assert next(blocks) == ["value 0", "value 1"]
    table[9] = "added"
    del table[3], table[4]
    table[5] = "replaced"
    assert list(blocks) == [["replaced", "value 6"]]


def test_a_removed_entry_is_left_out_and_a_replaced_one_has_its_new_value() -> None:
    table = filled(5)
    walk = table.walk()
    next(walk)
    del table[1]
    table[2] = "replaced"
    del table[3]
    table[3] = "made again"
    assert list(walk) == [(2, "replaced"), (3, "made again"), (4, "value 4")]


def test_a_walk_goes_on_after_another_one_has_begun_with_a_copy() -> None:
    table = filled(4)
    walk = table.walk()
    next(walk)
    del table[0]
    assert next(table.walk()) == (1, "value 1")
    del table[2]
    table[1] = "replaced"
    assert list(walk) == [(1, "replaced"), (3, "value 3")]


def test_each_change_is_counted_and_no_other_way_to_change_it_is_open() -> None:
    table = filled(2)
    changes = table.changes
    table[2] = "two"
    table[2] = "replaced"
    del table[0]
    with pytest.raises(KeyError):
        del table[0]
    assert table.changes == changes + 3
    for change in (
        lambda: table.pop(1),
        lambda: table.popitem(),
        lambda: table.clear(),
        lambda: table.update({5: "five"}),
        lambda: table.setdefault(5, "five"),
        lambda: table.__ior__({5: "five"}),
    ):
        with pytest.raises(TypeError, match="by del alone"):
            change()
    assert dict(table) == {1: "value 1", 2: "replaced"}


@pytest.mark.parametrize("seed", range(50))
def test_walks_beside_changes_agree_with_a_plain_dict(seed: int) -> None:
    """Each walk visits the keys that were there from its begin until their turn, once each, with their present values;
    a key that was removed and set again may count as there."""
    chance = random.Random(seed)
    table, plain = filled(0), dict[int, str]()
    walks: list[tuple[Iterator[tuple[int, str]], set[int], set[int]]] = []
    for step in range(400):
        key = chance.randrange(20)
        choice = chance.random()
        if choice < 0.35:
            table[key] = plain[key] = f"step {step}"
        elif choice < 0.6 and key in plain:
            del table[key], plain[key]
            for _, steady, _ in walks:
                steady.discard(key)
        elif choice < 0.7:
            walk = table.walk()
            first = next(walk, None)  # from here on it knows its keys
            if first is None:
                assert not plain
            else:
                assert plain[first[0]] == first[1]
                walks.append((walk, set(plain), {first[0]}))
        elif walks:
            walk, steady, seen = chance.choice(walks)
            found = next(walk, None)
            if found is None:
                assert steady <= seen
                walks = [one for one in walks if one[0] is not walk]
            else:
                assert plain[found[0]] == found[1]
                assert found[0] not in seen
                seen.add(found[0])
        assert dict(table) == plain
