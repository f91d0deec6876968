"""The trigger behind a rejoin, with and without a reason of the client."""

from collections.abc import Mapping

import pytest

from gregor.coordinator.history.causes import Cause, Identity, Rejoin, Trigger
from gregor.coordinator.history.rebalance import GroupType, Rebalance
from gregor.coordinator.history.triggers import refined
from tests.coordinator.history.facts import Topics
from tests.coordinator.history.messages_of_consumers import subscription

MEMBER = Identity("m", None, "c", "/h")
T = {"range": subscription("t")}


def behind(
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    *,
    reason: str | None = None,
    counts: Mapping[str, int] | None = None,
    topics: Topics | None = None,
    after_load: bool = False,
    protocol: str | None = "range",
) -> tuple[str, str]:
    """Trigger and detail."""
    rebalance = Rebalance(
        "g", GroupType.CLASSIC, 2, 5_000, protocol_before=protocol, before_ms=1_000, after_load=after_load
    )
    cause = Cause(Trigger.MEMBER_REJOINED, MEMBER, reason, rejoin=Rejoin(before, after, leads=True))
    found = refined(cause, rebalance, counts or {"t": 3}, topics or Topics(t=3))
    return found.trigger, found.detail


def test_new_partitions() -> None:
    assert behind(T, T, topics=Topics(t=6)) == (Trigger.TOPICS_CHANGED, "t has 6 partitions, not 3")


def test_new_topic_that_matches_a_pattern() -> None:
    topics = Topics(t=3, new=1)
    after = {"range": subscription("t", "new")}
    topics.created["new"] = 2_000
    assert behind(T, after, topics=topics) == (Trigger.TOPICS_CHANGED, "new was created")
    topics.created["new"] = 500
    assert behind(T, after, topics=topics) == (Trigger.SUBSCRIPTION_CHANGED, "new added")


def test_topic_that_was_deleted() -> None:
    before = {"range": subscription("t", "old")}
    assert behind(before, T) == (Trigger.TOPICS_CHANGED, "old was deleted")
    assert behind(T, T, topics=Topics()) == (Trigger.TOPICS_CHANGED, "t was deleted")


def test_changed_subscription() -> None:
    after = {"range": subscription("u")}
    topics = Topics(t=3, u=3)
    assert behind(T, after, topics=topics) == (Trigger.SUBSCRIPTION_CHANGED, "u added, t removed")


def test_long_lists_are_cut() -> None:
    topics = Topics(t=3, **{f"u{number}": 1 for number in range(9)})
    after = {"range": subscription("t", *(f"u{number}" for number in range(9)))}
    assert behind(T, after, topics=topics)[1] == "u0 added, u1 added, u2 added, u3 added, u4 added and 4 more"


def test_partitions_that_a_cooperative_member_gave_up() -> None:
    before = {"range": subscription("t", owned={"t": [0, 1, 2]})}
    after = {"range": subscription("t", owned={"t": [0]})}
    assert behind(before, after) == (Trigger.PARTITIONS_REVOKED, "partitions: 2")
    swapped = {"range": subscription("t", owned={"t": [0, 1], "u": [0, 1]})}
    assert behind(before, swapped) == (Trigger.PARTITIONS_REVOKED, "partitions: 1")
    reason = "need to revoke partitions and re-join"
    assert behind(before, before, reason=reason)[0] == Trigger.PARTITIONS_REVOKED


@pytest.mark.parametrize(
    "changed", [subscription("t", user_data=b"x"), subscription("t", version=3, rack="r")], ids=["user data", "rack"]
)
def test_metadata_of_a_member(changed: bytes) -> None:
    assert behind(T, {"range": changed})[0] == Trigger.METADATA_CHANGED


def test_generation_in_the_subscription_is_no_change() -> None:
    assert behind({"range": subscription("t", version=1)}, {"range": subscription("t", version=2)})[0] == (
        Trigger.MEMBER_REJOINED
    )


def test_reason_of_the_java_client_for_changed_topics() -> None:
    reason = "cached metadata has changed from (version1: {}) at the beginning of the rebalance to (version2: {})"
    assert behind(T, T, reason=reason)[0] == Trigger.TOPICS_CHANGED


def test_assignors() -> None:
    after = {"sticky": T["range"], "range": T["range"]}
    assert behind(T, after) == (Trigger.ASSIGNOR_CHANGED, "range -> sticky,range")


def test_after_a_load_only_the_assignor_of_the_group_is_compared() -> None:
    both = {"sticky": T["range"], "range": T["range"]}
    assert behind(T, both, after_load=True)[0] == Trigger.COORDINATOR_CHANGED
    assert behind(T, {"sticky": T["range"]}, after_load=True)[0] == Trigger.ASSIGNOR_CHANGED


def test_metadata_of_other_members_than_consumers_is_compared_as_bytes() -> None:
    assert behind({"range": b"a"}, {"range": b"b"})[0] == Trigger.METADATA_CHANGED
    assert behind({"range": b"a"}, {"range": b"a"})[0] == Trigger.MEMBER_REJOINED
    assert behind({"range": b"a"}, {"range": b"a"}, after_load=True)[0] == Trigger.COORDINATOR_CHANGED


def test_other_causes_stay_as_they_are() -> None:
    rebalance = Rebalance("g", GroupType.CLASSIC, 2, 0)
    cause = Cause(Trigger.MEMBER_LEFT, MEMBER)
    assert refined(cause, rebalance, {}, Topics()) is cause
