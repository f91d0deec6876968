"""Observes the group epochs of the consumer groups of one shard: replayed records in, finished rebalances out.

An epoch begins with the record that bumps it; the records before it in the log have the cause. It ends when every
member has reconciled with the target assignment of the epoch, or with the next epoch. (KIP-848)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gregor.coordinator.history.causes import Cause, Identity, Trigger
from gregor.coordinator.history.rebalance import (
    Arrival,
    GroupType,
    Outcome,
    PartitionMap,
    Rebalance,
    RebalanceLog,
    Step,
)

MAX_STEPS = 20_000
MAX_CHANGES = 100
"""Changes of members of one group that no epoch has followed yet."""
MAX_AGE_MS = 60_000
"""An epoch that follows later has another cause. The topics of a regular expression are found a little later."""
LEFT_EPOCH = -1
"""The epoch of a member without record."""
CONSUMER_PROTOCOL_TYPE = "consumer"


class SubscriptionView(Protocol):
    """A member's data about itself."""

    @property
    def instance_id(self) -> str | None: ...
    @property
    def rack_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def topics(self) -> frozenset[str]: ...
    @property
    def regex(self) -> str: ...
    @property
    def assignor(self) -> str | None: ...


class AssignmentView(Protocol):
    """The epoch of a member and its partitions; `state` 0 is that of a reconciled member."""

    @property
    def state(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def assigned(self) -> PartitionMap: ...
    @property
    def pending_revocation(self) -> PartitionMap: ...


class EpochMember(Protocol):
    """A member of a consumer group."""

    @property
    def member_id(self) -> str: ...
    @property
    def subscription(self) -> SubscriptionView: ...
    @property
    def assignment(self) -> AssignmentView: ...


class EpochGroup(Protocol):
    """A consumer group."""

    @property
    def group_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def target_epoch(self) -> int: ...
    @property
    def members(self) -> Mapping[str, EpochMember]: ...


class _Changes(NamedTuple):
    """The changes of the members of a group since its last epoch."""

    causes: list[Cause]
    removals: list[Step]


class ConsumerEpochs:
    """At most one epoch of a group is under way. All is soft state; nothing is observed before the shard is loaded."""

    def __init__(self, log: RebalanceLog) -> None:
        self._log = log
        self._open: dict[str, Rebalance] = {}
        self._awaited: dict[str, set[str]] = {}
        self._changes: dict[str, _Changes] = {}
        self._expected: dict[tuple[str, str], tuple[Trigger, str]] = {}
        # Groups that are converted; True: their next epoch is the generation of the classic group.
        self._converted: dict[str, bool] = {}

    def on_unloaded(self) -> None:
        """Drop what is under way."""
        self._open.clear()
        self._awaited.clear()
        self._changes.clear()
        self._expected.clear()
        self._converted.clear()

    def forget(self, group_id: str) -> None:
        """The group is no longer a consumer group."""
        self._open.pop(group_id, None)
        self._awaited.pop(group_id, None)
        self._changes.pop(group_id, None)
        self._converted.pop(group_id, None)

    def convert(self, group_id: str, *, with_members: bool) -> None:
        """The group was a classic one. With members, the records of these follow, and its generation as an epoch."""
        self._converted[group_id] = with_members

    # --- causes

    def expect(self, group_id: str, member_id: str, trigger: Trigger, detail: str) -> None:
        """The member is about to be removed for this cause; without it, it left."""
        self._expected[group_id, member_id] = trigger, detail

    def on_subscription(
        self, group_id: str, member_id: str, before: SubscriptionView | None, after: SubscriptionView | None
    ) -> None:
        """A member joined, changed or left; its record is replayed."""
        present = after if after is not None else before
        if present is None:
            return
        identity = Identity(member_id, present.instance_id, present.client_id, present.client_host)
        found = self._changes.get(group_id)
        if found is None:
            found = self._changes[group_id] = _Changes([], [])
        if after is None:
            trigger, detail = self._expected.pop((group_id, member_id), (Trigger.MEMBER_LEFT, ""))
        elif before is None:
            replaced = _replaced(found.causes, identity)
            if replaced is not None:
                found.causes.remove(replaced)
                found.removals[:] = [step for step in found.removals if step.name != identity.name]
                detail = f"it was {replaced.member.member_id} before"
                trigger = Trigger.STATIC_MEMBER_REPLACED
            else:
                trigger, detail = Trigger.MEMBER_JOINED, ""
        else:
            changed = _change(before, after)
            if changed is None:
                return
            trigger, detail = changed
        if len(found.causes) < MAX_CHANGES:
            found.causes.append(Cause(trigger, identity, None, detail, self._log.now_ms()))

    # --- epochs

    def on_epoch(self, group: EpochGroup) -> None:
        """The record of a new group epoch is replayed."""
        group_id, now_ms = group.group_id, self._log.now_ms()
        found = self._changes.pop(group_id, None) or _Changes([], [])
        if self._converted.get(group_id):
            self._converted[group_id] = False
            return
        rebalance = Rebalance(
            group_id,
            GroupType.CONSUMER,
            group.epoch,
            now_ms,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            size=len(group.members),
        )
        chained = self._open.pop(group_id, None)
        if chained is not None:
            # The steps continue from the assignments before the first of the epochs.
            rebalance.owned_before, rebalance.steps = chained.owned_before, chained.steps
            self._end(chained, Outcome.SUPERSEDED, now_ms)
        else:
            rebalance.owned_before = {_name(member): _owned(member.assignment) for member in group.members.values()} | {
                step.name: step.before for step in found.removals
            }
            rebalance.steps = found.removals
        causes = [
            cause for cause in found.causes if now_ms - cause.at_ms <= _MAX_AGES_MS.get(cause.trigger, MAX_AGE_MS)
        ]
        if self._converted.pop(group_id, None) is not None:
            causes.append(Cause(Trigger.PROTOCOL_CHANGED, detail="classic to consumer", at_ms=now_ms))
        for cause in causes or [Cause(Trigger.TOPICS_CHANGED, at_ms=now_ms)]:
            rebalance.add_cause(cause, cause.at_ms)
            if cause.trigger in _REMOVALS:
                rebalance.removed.append(Arrival(cause.member, cause.at_ms))
        if not group.members:
            self._end(rebalance, Outcome.EMPTY, now_ms)
            return
        self._open[group_id] = rebalance
        self._awaited[group_id] = set(group.members)

    def on_target(self, group: EpochGroup) -> None:
        """The record of the epoch of the target assignment is replayed."""
        rebalance = self._open.get(group.group_id)
        if rebalance is not None and group.target_epoch == rebalance.epoch:
            rebalance.reached_target(self._log.now_ms())

    def on_assignment(self, group: EpochGroup, member: EpochMember, before: AssignmentView) -> None:
        """The record of the assignment of a member is replayed; one that leaves has none from now on."""
        group_id, after = group.group_id, member.assignment
        rebalance = self._open.get(group_id)
        if rebalance is None and after.epoch != LEFT_EPOCH:
            return
        now_ms = self._log.now_ms()
        step = Step(now_ms, _name(member), _owned(before), _owned(after))
        if rebalance is None:
            removals = self._changes.setdefault(group_id, _Changes([], [])).removals
            if len(removals) < MAX_CHANGES:
                removals.append(step)
            return
        if len(rebalance.steps) < MAX_STEPS:
            rebalance.steps.append(step)
        if after.epoch == rebalance.epoch and after.state == 0:
            self._arrived(group, rebalance, member, now_ms)
        elif after.epoch < 0:
            self._awaited[group_id].discard(member.member_id)

    def _arrived(self, group: EpochGroup, rebalance: Rebalance, member: EpochMember, now_ms: int) -> None:
        awaited = self._awaited[group.group_id]
        if member.member_id in awaited:
            awaited.discard(member.member_id)
            present = member.subscription
            identity = Identity(member.member_id, present.instance_id, present.client_id, present.client_host)
            rebalance.arrivals.append(Arrival(identity, now_ms))
        if not awaited and group.target_epoch == rebalance.epoch:
            del self._open[group.group_id], self._awaited[group.group_id]
            self._end(rebalance, Outcome.ASSIGNED, now_ms, size=len(group.members))

    def _end(self, rebalance: Rebalance, outcome: Outcome, now_ms: int, size: int = -1) -> None:
        rebalance.end(outcome, now_ms, size=size)
        self._log.record(rebalance)


_REMOVALS = frozenset({Trigger.MEMBER_LEFT, Trigger.SESSION_TIMEOUT, Trigger.REBALANCE_TIMEOUT, Trigger.SYNC_TIMEOUT})


_MAX_AGES_MS = {Trigger.STATIC_MEMBER_REPLACED: 0}
"""By itself this one begins no epoch, so only one in the same operation can be its effect."""


def _replaced(causes: list[Cause], identity: Identity) -> Cause | None:
    """The removal of the member that a static member replaces."""
    if identity.group_instance_id is None:
        return None
    return next(
        (
            cause
            for cause in causes
            if cause.trigger in _REMOVALS and cause.member.group_instance_id == identity.group_instance_id
        ),
        None,
    )


def _change(before: SubscriptionView, after: SubscriptionView) -> tuple[Trigger, str] | None:
    if before.topics != after.topics:
        changes = [f"{topic} added" for topic in sorted(after.topics - before.topics)]
        changes += [f"{topic} removed" for topic in sorted(before.topics - after.topics)]
        return Trigger.SUBSCRIPTION_CHANGED, ", ".join(changes)
    if before.regex != after.regex:
        return Trigger.SUBSCRIPTION_CHANGED, f"{before.regex!r} -> {after.regex!r}"
    if before.assignor != after.assignor:
        return Trigger.ASSIGNOR_CHANGED, f"{before.assignor} -> {after.assignor}"
    if before.rack_id != after.rack_id:
        return Trigger.METADATA_CHANGED, f"rack {before.rack_id} -> {after.rack_id}"
    return None


def _name(member: EpochMember) -> str:
    return member.subscription.instance_id or member.member_id


def _owned(assignment: AssignmentView) -> tuple[PartitionMap, PartitionMap]:
    return assignment.assigned, assignment.pending_revocation
