"""From the observation of a rebalance to the value of its record: long work, in steps, when no member waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gregor.coordinator.history.assignments import (
    CONSUMER_PROTOCOL_TYPE,
    Partitions,
    Undecodable,
    decode_assignment,
)
from gregor.coordinator.history.causes import Cause, Trigger
from gregor.coordinator.history.ownership import Comparison, Releases, Unowned, compare, follow, owners, owners_by_id
from gregor.coordinator.history.rebalance import Arrival, Assignment, GroupType, Outcome, Rebalance
from gregor.coordinator.history.triggers import TopicFacts, refined, with_topics
from gregor.protocol.ids import Uuid, uuid_to_text
from gregor.protocol.messages import RebalanceValue
from gregor.protocol.turns import Steps

MAX_MEMBERS = 100
MAX_MOVED_PARTITIONS = 500
"""Listed in one record; all are counted."""
MAX_TEXT_CHARS = 255


class Summaries:
    """Makes the values of the records, in the order of the rebalances."""

    def __init__(self, coordinator_id: int, facts: TopicFacts) -> None:
        self._coordinator_id = coordinator_id
        self._facts = facts
        self._unowned = Unowned()

    def forget(self, group_id: str) -> None:
        """The group was deleted."""
        self._unowned.pop(group_id)

    def value_of(self, rebalance: Rebalance) -> Steps[RebalanceValue]:
        """Return the value of its record."""
        if rebalance.group_type is GroupType.CONSUMER:
            return (yield from self._value_of_epoch(rebalance))
        before = yield from _decoded(rebalance, rebalance.before.items())
        counts = _partition_counts(before or {})
        for topic, number in self._unowned.of(rebalance.group_id):
            counts[topic] = max(counts.get(topic, 0), number + 1)
        causes = [refined(cause, rebalance, counts, self._facts) for cause in rebalance.causes]
        yield None
        value = self._value(rebalance, [*causes, *_assignor_cause(rebalance, causes)])
        after = yield from _decoded(rebalance, rebalance.assigned)
        value = value.replaced(members=_members(rebalance, after))
        if rebalance.outcome is Outcome.SUPERSEDED:
            return value
        if before is None or after is None:
            self._unowned.pop(rebalance.group_id)
            return value.replaced(moved=_changed(rebalance))
        comparison = yield from self._compare(rebalance, before, after)
        return _with_comparison(value, comparison)

    def _value_of_epoch(self, rebalance: Rebalance) -> Steps[RebalanceValue]:
        """The same of an epoch of the consumer protocol, whose partitions are known step by step."""
        before = yield from owners_by_id(rebalance.owned_before, self._name_of)
        comparison = Comparison()
        if rebalance.outcome is not Outcome.SUPERSEDED:
            unowned = self._unowned.pop(rebalance.group_id)
            comparison = yield from follow(before, rebalance.steps, unowned, self._name_of)
            self._unowned.put(rebalance.group_id, unowned)
        counts: dict[str, int] = {}
        for topic, number in before:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        added = {move.topic for move in comparison.moves if move.topic not in counts}
        value = self._value(rebalance, [with_topics(cause, counts, added, self._facts) for cause in rebalance.causes])
        value = value.replaced(members=_members(rebalance, None))
        return value if rebalance.outcome is Outcome.SUPERSEDED else _with_comparison(value, comparison)

    def _name_of(self, topic_id: Uuid) -> str:
        return self._facts.topic_name(topic_id) or uuid_to_text(topic_id)

    def _value(self, rebalance: Rebalance, causes: list[Cause]) -> RebalanceValue:
        """The value, without what follows from the assignments."""
        return RebalanceValue(
            group_type=rebalance.group_type.value,
            epoch=rebalance.epoch,
            outcome=rebalance.outcome.value,
            protocol_type=_text(rebalance.protocol_type),
            protocol=_nullable(rebalance.protocol),
            coordinator_id=self._coordinator_id,
            began_ms=rebalance.began_ms,
            joined_ms=rebalance.joined_ms,
            ended_ms=rebalance.ended_ms,
            not_recorded=rebalance.not_recorded,
            causes=[_cause(cause) for cause in causes],
            causes_count=rebalance.causes_count,
            members_count=len(rebalance.arrivals) if rebalance.size < 0 else rebalance.size,
            partitions=-1,
            without_owner_ms=-1,
        )

    def _compare(
        self, rebalance: Rebalance, before: Mapping[str, Partitions], after: Mapping[str, Partitions]
    ) -> Steps[Comparison]:
        unowned = self._unowned.pop(rebalance.group_id)
        releases = yield from Releases.of_members(rebalance.claims, rebalance.gone)
        owners_before = yield from owners(before)
        owners_after = yield from owners(after)
        found = yield from compare(owners_before, owners_after, releases, unowned, rebalance.ended_ms)
        self._unowned.put(rebalance.group_id, unowned)
        return found


def _decoded(
    rebalance: Rebalance, assignments: Iterable[tuple[str, Assignment]]
) -> Steps[dict[str, Partitions] | None]:
    """Return the assignments by member; None if the members are no consumers, or an assignment cannot be decoded."""
    found: dict[str, Partitions] = {}
    is_consumers = rebalance.protocol_type in ("", CONSUMER_PROTOCOL_TYPE)
    for name, assignment in assignments:
        if not is_consumers:
            return None
        try:
            found[name] = decode_assignment(assignment)
        except Undecodable:
            return None
        yield None
    return found


def _partition_counts(assignments: Mapping[str, Partitions]) -> dict[str, int]:
    """Assignors assign all partitions, so that the highest one shows how many a topic had."""
    counts: dict[str, int] = {}
    for assignment in assignments.values():
        for topic, numbers in assignment.items():
            if numbers:
                counts[topic] = max(counts.get(topic, 0), max(numbers) + 1)
    return counts


def _assignor_cause(rebalance: Rebalance, causes: Iterable[Cause]) -> list[Cause]:
    """The group may have agreed on another assignor because a member came or went."""
    old, new = rebalance.protocol_before, rebalance.protocol
    known = any(cause.trigger is Trigger.ASSIGNOR_CHANGED for cause in causes)
    if old is None or new is None or old == new or known:
        return []
    return [Cause(Trigger.ASSIGNOR_CHANGED, detail=f"{old} -> {new}", at_ms=rebalance.joined_ms)]


def _changed(rebalance: Rebalance) -> int:
    """The number of members that have another assignment than before."""
    before = rebalance.before
    return sum(before.get(name, b"") != assignment for name, assignment in rebalance.assigned)


def _with_comparison(value: RebalanceValue, found: Comparison) -> RebalanceValue:
    moves = []
    room = MAX_MOVED_PARTITIONS
    for move, numbers in found.moves.items():
        if room <= 0:
            break
        moves.append(
            RebalanceValue.Move(
                topic=move.topic,
                from_member=_nullable(move.from_member),
                to_member=_nullable(move.to_member),
                partitions=sorted(numbers)[:room],
            )
        )
        room -= len(numbers)
    return value.replaced(
        partitions=found.partitions,
        moved=found.moved,
        added=found.added,
        removed=found.removed,
        without_owner=found.without_owner,
        without_owner_ms=found.without_owner_ms,
        moves=moves,
    )


def _cause(cause: Cause) -> RebalanceValue.Cause:
    return RebalanceValue.Cause(
        trigger=cause.trigger.value,
        at_ms=cause.at_ms,
        reason=_nullable(cause.reason or None),
        detail=_text(cause.detail),
        member_id=_text(cause.member.member_id),
        group_instance_id=_nullable(cause.member.group_instance_id),
        client_id=_text(cause.member.client_id),
        client_host=_text(cause.member.client_host),
    )


def _members(rebalance: Rebalance, after: Mapping[str, Partitions] | None) -> list[RebalanceValue.Member]:
    """The members of the new generation and those that were removed, the longest waits first."""
    arrivals = [(one, True) for one in rebalance.arrivals] + [(one, False) for one in rebalance.removed]
    arrivals.sort(key=lambda arrival: -_wait_ms(arrival[0], rebalance))
    return [
        RebalanceValue.Member(
            waited_ms=_wait_ms(one, rebalance),
            joined=joined,
            partitions=-1 if after is None else sum(map(len, after.get(one.member.name, {}).values())) if joined else 0,
            member_id=_text(one.member.member_id),
            group_instance_id=_nullable(one.member.group_instance_id),
            client_id=_text(one.member.client_id),
            client_host=_text(one.member.client_host),
        )
        for one, joined in arrivals[:MAX_MEMBERS]
    ]


def _wait_ms(arrival: Arrival, rebalance: Rebalance) -> int:
    return max(0, arrival.at_ms - rebalance.began_ms)


def _text(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 3] + "..."


def _nullable(text: str | None) -> str | None:
    return None if text is None else _text(text)
