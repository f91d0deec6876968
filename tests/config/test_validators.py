"""Which typed values the validators of settings accept, and how they describe them."""

from __future__ import annotations

import pytest

from gregor.config.validators import ANY_VALUE, ConfigValue, Form, Validator, at_least, between, one_of

EVEN = Form(lambda value: isinstance(value, int) and value % 2 == 0, "an even number")


@pytest.mark.parametrize(
    ("validator", "accepted", "refused"),
    [
        (ANY_VALUE, [None, True, -1, 0.5, "text", []], []),
        (at_least(2), [2, 2.5, 2**63], [1, 1.9, "2"]),
        (at_least(2, also=(-1,)), [-1, 2], [-2, 0, 1]),
        (between(1, 9, also=(-1,)), [-1, 1, 9], [-2, 0, 10]),
        (between(0, 0.5), [0, 0.5], [0.51, -0.01]),
        (one_of("a", "b"), ["a", "b", [], ["b", "a"]], ["", "c", ["a", "c"]]),
        (EVEN, [0, 2], [1, "2"]),
    ],
)
def test_accepted_and_refused_values(
    validator: Validator, accepted: list[ConfigValue], refused: list[ConfigValue]
) -> None:
    assert [value for value in accepted if not validator.accepts(value)] == []
    assert [value for value in refused if validator.accepts(value)] == []


@pytest.mark.parametrize(
    ("validator", "type", "words"),
    [
        (ANY_VALUE, "boolean", "true or false"),
        (ANY_VALUE, "class", "a class name"),
        (ANY_VALUE, "password", "a text"),
        (ANY_VALUE, "long", "a whole number (long)"),
        (at_least(0, also=(-1,)), "int", "a whole number (int), at least 0, or -1"),
        (between(0, 1), "double", "a number from 0 to 1"),
        (one_of("a", "b"), "string", "one of a, b"),
        (one_of("a", "b"), "list", "a comma-separated list of a, b"),
        (EVEN, "int", "an even number"),
    ],
)
def test_legal_values_in_words(validator: Validator, type: str, words: str) -> None:
    assert validator.legal(type) == words
