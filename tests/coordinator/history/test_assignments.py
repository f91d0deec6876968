"""Subscriptions and assignments of consumers, also those that no client should send."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.coordinator.history.assignments import (
    Subscription,
    Undecodable,
    decode_assignment,
    decode_subscription,
)
from tests.coordinator.history.messages_of_consumers import assignment, subscription


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscription_of_each_version(version: int) -> None:
    data = subscription("a", "b", owned={"a": [1, 2]}, version=version, user_data=b"u", rack="r")
    assert decode_subscription(data) == Subscription(
        frozenset({"a", "b"}),
        b"u",
        {"a": (1, 2)} if version >= 1 else None,
        "r" if version >= 3 else None,
    )


def test_newer_version_may_have_more_fields() -> None:
    data = subscription("a", version=3) + b"more"
    assert decode_subscription(struct.pack(">h", 9) + data[2:]).topics == {"a"}


def test_assignment() -> None:
    assert decode_assignment(assignment({"a": [3, 1], "b": []})) == {"a": (3, 1), "b": ()}
    assert decode_assignment(b"") == {}


def test_topic_may_come_twice() -> None:
    once = assignment({"a": [1]})
    twice = once[:2] + struct.pack(">i", 2) + once[6:-4] + once[6:]
    assert decode_assignment(twice) == {"a": (1, 1)}


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(data: bytes) -> None:
    for decode in (decode_assignment, decode_subscription):
        try:
            decode(data)
        except Undecodable:
            continue


def test_announced_lengths_are_not_trusted() -> None:
    with pytest.raises(Undecodable):
        decode_assignment(struct.pack(">hi", 0, 2**31 - 1))
    with pytest.raises(Undecodable):
        decode_subscription(subscription("a")[:-1])
