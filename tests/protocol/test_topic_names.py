"""Topic names."""

from __future__ import annotations

import pytest

from gregor.protocol.topic_names import colliding, name_problem


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "_", "-", "x" * 249, "__consumer_offsets"])
def test_legal(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\x00", "a,b", "a:b", "²"])
def test_illegal(name: str) -> None:
    assert name_problem(name)


def test_collisions() -> None:
    assert colliding("a.b", ["x", "a_b"]) == "a_b"
    assert colliding("a_b.c", ["a.b_c"]) == "a.b_c"
    assert colliding("a.b", ["a.b", "ab", "a-b"]) is None
    assert colliding("ab", ["a_b", "a.b"]) is None
