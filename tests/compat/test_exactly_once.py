"""The oracle of the consume-transform-produce loop finds each kind of wrong in a result that is right but for that."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.compat.copies import Copy, violations
from tests.compat.transaction_faults import pairs_of

FED = {0: 3, 1: 1}
Result = tuple[list[Copy], list[Copy], dict[str, list[str]]]


def right() -> Result:
    """A transaction of two records that is committed, one that is aborted, one of two partitions."""
    final = [
        Copy(0, 0, "0.0|a-0|commit"),
        Copy(1, 0, "0.1|a-0|commit"),
        Copy(0, 4, "0.2|b-0|commit"),
        Copy(1, 2, "1.0|b-0|commit"),
    ]
    aborted = [Copy(0, 2, "0.2|a-1|abort")]
    committed = ["produced 2", "ending commit", "ended commit"]
    phases = {"a-0": committed, "b-0": committed, "a-1": ["produced 1", "ending abort", "ended abort"]}
    return final, final + aborted, phases


def test_result_that_is_right() -> None:
    final, everything, phases = right()
    assert violations(final, everything, FED, phases.__getitem__) == []


Change = Callable[[list[Copy], list[Copy], dict[str, list[str]]], object]
WRONGS: dict[str, Change] = {
    "lost: 1 (1.0)": lambda final, _, __: final.pop(),
    "visible in part: 1 (1 records of b-0 ['produced 2', 'ending commit', 'ended commit'])": lambda final, _, __: (
        final.pop()
    ),
    "committed, but hidden: 1 (Copy(partition=1, offset=2, value='1.0|b-0|commit'))": lambda final, _, __: final.pop(),
    "not from the input: 1 (0.3)": lambda final, _, __: final.append(Copy(0, 6, "0.3|b-0|commit")),
    "more than once: 2 (Copy(partition=0, offset=0, value='0.0|a-0|commit'), "
    "Copy(partition=0, offset=6, value='0.0|b-0|commit'))": lambda final, _, __: final.append(
        Copy(0, 6, "0.0|b-0|commit")
    ),
    "out of order: 1 (Copy(partition=0, offset=6, value='0.0|b-0|commit'))": lambda final, _, __: final.append(
        Copy(0, 6, "0.0|b-0|commit")
    ),
    "visible, though it was not to be committed: 1 (a-1 ['produced 1', 'ending abort', 'ended abort'])": (
        lambda final, everything, _: final.append(everything[-1])
    ),
    "visible, though it was not to be committed: 1 (b-0 ['produced 2'])": lambda _, __, phases: phases.update(
        {"b-0": ["produced 2"]}
    ),
}


@pytest.mark.parametrize("wrong", WRONGS)
def test_wrong_result_is_found(wrong: str) -> None:
    final, everything, phases = right()
    final = [*final]
    WRONGS[wrong](final, everything, phases)
    assert wrong in violations(final, everything, FED, phases.__getitem__)


@pytest.mark.parametrize(("victims", "phases"), [(6, 5), (2, 5), (4, 6), (5, 5)])
def test_few_rounds_have_each_victim_and_each_phase(victims: int, phases: int) -> None:
    """All rounds have each pair once."""
    found = [*itertools.islice(pairs_of([*map(str, range(victims))], [*map(str, range(phases))]), victims * phases)]
    assert len(set(found)) == victims * phases
    first = found[: max(victims, phases)]
    assert (len({victim for victim, _ in first}), len({phase for _, phase in first})) == (victims, phases)
