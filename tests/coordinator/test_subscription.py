"""Topics read out of the metadata of consumers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.coordinator.group.subscription import subscribed_topics

# ConsumerProtocolSubscription v1: topics "a" and "bc", no user data, nothing owned.
V1 = b"\0\1" + b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"\xff\xff\xff\xff" + b"\0\0\0\0"
V0 = b"\0\0" + b"\0\0\0\1" + b"\0\1d" + b"\0\0\0\0"


def test_the_topics_of_all_members_together() -> None:
    assert subscribed_topics([V1, V0]) == frozenset({"a", "bc", "d"})


def test_no_members_subscribe_to_nothing() -> None:
    assert subscribed_topics([]) == frozenset()


def test_later_versions_start_alike() -> None:
    assert subscribed_topics([b"\0\7" + V1[2:] + b"more"]) == frozenset({"a", "bc"})


@pytest.mark.parametrize("data", [b"", b"\0\0", V1[:6], V1[:-12], b"\0\1\0\0\0\1\xff\xffa", b"\0\1\0\0\0\1\0\1\xff"])
def test_one_member_that_cannot_be_understood_hides_all(data: bytes) -> None:
    assert subscribed_topics([V0, data]) is None


@settings(max_examples=60)
@given(st.binary(max_size=40))
def test_any_bytes_are_topics_or_nothing(data: bytes) -> None:
    topics = subscribed_topics([data])
    assert topics is None or all(isinstance(topic, str) for topic in topics)
