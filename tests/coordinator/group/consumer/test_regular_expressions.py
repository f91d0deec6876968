"""Regular expressions of topic names: RE2, the whole name, Kafka's error, bounded work."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.coordinator.group.consumer.regular_expressions import (
    MAX_EXPRESSION_CHARACTERS,
    compile_expression,
    matching,
)
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.turns import run_all

NAMES = ["orders", "orders-eu", "payments", "returns.v1", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("expression", "matched"),
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders-eu"]),
        ("order", []),
        ("(?i)ORDERS|pay.*", ["orders", "payments"]),
        ("[a-z]+\\.v\\d", ["returns.v1"]),
        ("^orders$", ["orders"]),
        ("", []),
        (".*", NAMES),
    ],
)
def test_an_expression_matches_whole_names(expression: str, matched: list[str]) -> None:
    assert run_all(matching([expression], NAMES)) == {expression: frozenset(matched)}


@pytest.mark.parametrize(
    "expression",
    [
        "(",
        "*",
        "\\",
        "[",
        "a{2000}",
        "(?=a)",
        "(a)\\1",
        "\ud800",
        "a" * (MAX_EXPRESSION_CHARACTERS + 1),
        "((a{99}){99}){99}",
    ],
)
def test_a_text_that_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(KafkaError) as caught:
        compile_expression(expression)
    assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert caught.value.message
    assert run_all(matching([expression], NAMES)) == {expression: frozenset()}


def test_names_may_change_between_two_steps() -> None:
    names = dict.fromkeys(NAMES)
    steps = matching([".*"], names)
    for _ in range(3):
        next(steps)
    names["new"] = None
    assert run_all(steps) == {".*": frozenset(NAMES)}


@settings(max_examples=200)
@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        compile_expression(text)("orders")
    except KafkaError as error:
        assert error.code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    ["(?:a?){250}a{250}", "(?:[a-z_]?[a-z]?){200}1", ".*a.{200}x", "(.*.*.*.*.*.*.*.*)*x", "|".join("abc" * 999)],
)
def test_the_worst_expressions_do_not_keep_the_loop(expression: str) -> None:
    steps = matching([expression], [f"{'a' * 240}{number:07}" for number in range(100)])
    begun = time.thread_time()
    assert run_all(steps) == {expression: frozenset()}
    assert time.thread_time() - begun < 1
