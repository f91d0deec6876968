"""The trigger behind a rejoin: what the member, or the topics that it reads, has changed.

The protocol has no field for it. It follows from the subscription before and now, the number of partitions before and
now, and the reason that newer clients give (KIP-800).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from gregor.coordinator.history.assignments import Subscription, Undecodable, decode_subscription
from gregor.coordinator.history.causes import Cause, Rejoin, Trigger
from gregor.coordinator.history.rebalance import Rebalance
from gregor.protocol.ids import Uuid
from gregor.protocol.topic_partition import TopicPartitionKey

TOPICS_REASON = "cached metadata has changed"
"""The reason of Java's consumer when the leader sees other topics or numbers of partitions."""
REVOKED_REASON = "need to revoke partitions and re-join"
"""The reason of Java's consumer after a cooperative rebalance has revoked partitions."""
MAX_NAMES = 5


class TopicFacts(Protocol):
    """The topics of the cluster."""

    def partition_count(self, topic: str) -> int:
        """Number of partitions, 0 for a topic that does not exist."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic that exists."""

    def created_ms(self, topic: str) -> int | None:
        """When the topic appeared, if it did while this broker runs."""


def refined(cause: Cause, rebalance: Rebalance, counts: Mapping[str, int], facts: TopicFacts) -> Cause:
    """Return the cause with the trigger that is behind a rejoin; `counts` are the partitions per topic before."""
    if cause.rejoin is None or cause.trigger is not Trigger.MEMBER_REJOINED:
        return cause
    trigger, detail = _behind(cause, cause.rejoin, rebalance, counts, facts)
    return cause._replace(trigger=trigger, detail=detail)


def with_topics(cause: Cause, counts: Mapping[str, int], added: Iterable[str], facts: TopicFacts) -> Cause:
    """Name the topics behind an epoch of the consumer protocol whose cause they are; `added` had no owner before."""
    if cause.trigger is not Trigger.TOPICS_CHANGED or cause.detail:
        return cause
    changes = [_change_of(topic, known, facts.partition_count(topic)) for topic, known in sorted(counts.items())]
    changes += [f"{topic} was {'added' if facts.created_ms(topic) is None else 'created'}" for topic in sorted(added)]
    return cause._replace(detail=_listed([change for change in changes if change]))


def _change_of(topic: str, known: int, present: int) -> str:
    if not present:
        return f"{topic} was deleted"
    return f"{topic} has {present} partitions, not {known}" if present > known else ""


def _behind(
    cause: Cause, rejoin: Rejoin, rebalance: Rebalance, counts: Mapping[str, int], facts: TopicFacts
) -> tuple[Trigger, str]:
    assignors = _assignors_changed(rejoin, rebalance)
    if assignors:
        return Trigger.ASSIGNOR_CHANGED, assignors
    reason = cause.reason or ""
    before, after = _subscriptions(rejoin, rebalance.protocol_before)
    # Before the topics: partitions that were just revoked have no owner, as new ones.
    given_up = 0 if before is None or after is None else len(_owned(before) - _owned(after))
    if given_up or reason.startswith(REVOKED_REASON):
        return Trigger.PARTITIONS_REVOKED, f"partitions: {given_up}" if given_up else ""
    changed = "" if after is None else _topics_changed(before, after, rebalance, counts, facts)
    if changed or reason.startswith(TOPICS_REASON):
        return Trigger.TOPICS_CHANGED, changed
    if before is not None and after is not None:
        if before.topics != after.topics:
            return Trigger.SUBSCRIPTION_CHANGED, _difference(before.topics, after.topics)
        if before.user_data != after.user_data or before.rack != after.rack:
            return Trigger.METADATA_CHANGED, ""
    elif rejoin.before != rejoin.after:
        return Trigger.METADATA_CHANGED, ""
    if rebalance.after_load:
        return Trigger.COORDINATOR_CHANGED, ""
    return Trigger.MEMBER_REJOINED, ""


def _assignors_changed(rejoin: Rejoin, rebalance: Rebalance) -> str:
    """After a load only the assignor of the group is known, not the others that the member offered."""
    if rebalance.after_load and (rebalance.protocol_before is None or rebalance.protocol_before in rejoin.after):
        return ""
    before, after = list(rejoin.before), list(rejoin.after)
    return "" if before == after else f"{','.join(before)} -> {','.join(after)}"


def _subscriptions(rejoin: Rejoin, protocol: str | None) -> tuple[Subscription | None, Subscription | None]:
    if protocol is None or protocol not in rejoin.after:
        return None, None
    try:
        after = decode_subscription(rejoin.after[protocol])
        before = decode_subscription(rejoin.before[protocol]) if protocol in rejoin.before else None
    except Undecodable:
        return None, None
    return before, after


def _topics_changed(
    before: Subscription | None,
    after: Subscription,
    rebalance: Rebalance,
    counts: Mapping[str, int],
    facts: TopicFacts,
) -> str:
    """Describe topics that were created or deleted, or have more partitions, since the last assignment."""
    changes = []
    for topic in sorted(after.topics):
        known, present = counts.get(topic, 0), facts.partition_count(topic)
        created_ms = facts.created_ms(topic)
        if known:
            changes += [change for change in (_change_of(topic, known, present),) if change]
        elif created_ms is not None and created_ms >= rebalance.before_ms >= 0:
            changes.append(f"{topic} was created")
    if before is not None:
        gone = sorted(topic for topic in before.topics - after.topics if not facts.partition_count(topic))
        changes += [f"{topic} was deleted" for topic in gone]
    return _listed(changes)


def _owned(subscription: Subscription) -> frozenset[TopicPartitionKey]:
    return frozenset((topic, number) for topic, numbers in (subscription.owned or {}).items() for number in numbers)


def _difference(before: frozenset[str], after: frozenset[str]) -> str:
    return _listed(
        [f"{topic} added" for topic in sorted(after - before)]
        + [f"{topic} removed" for topic in sorted(before - after)]
    )


def _listed(changes: list[str]) -> str:
    more = len(changes) - MAX_NAMES
    return ", ".join(changes[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
