"""The target assignment of a group: when a new one is computed, from what, and the records that install it.

A small one is computed inside the operation that needs it. A large one is computed in turns of the event loop, from a
snapshot, and installed by operations of its own, some members at a time, while the members that it is for are the same;
the heartbeat that began it is answered then. Kafka: TargetAssignmentBuilder; KIP-1263 for the interval.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.assignors.assignor import NO_PARTITIONS, Assignment, MemberSpec, TopicSpec
from gregor.coordinator.group.consumer.assignors.table import ASSIGNORS
from gregor.coordinator.group.consumer.config import ConsumerGroups
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.member import Subscription
from gregor.coordinator.ports import ShardContext, TimedOperation
from gregor.coordinator.result import Record, Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import ITEMS_PER_STEP, Steps, run_all

_log = logging.getLogger(__name__)

MAX_SIZE_AT_ONCE = 400
"""Members and partitions of an assignment that is computed inside an operation. Each costs up to 10 us if the members
subscribe to different topics, and less than 1 us if they do not."""
MAX_MEMBERS_AT_ONCE = 100
"""Members whose targets one operation writes; each costs some 20 us."""

Targets = dict[str, Assignment]
Run = Callable[[Steps[Targets]], Awaitable[Targets]]
"""Runs steps in turns of the event loop: Gate.run."""


class Snapshot(NamedTuple):
    """Members and topics for which a target assignment is computed. `target` is the present one."""

    epoch: int
    subscriptions: Mapping[str, Subscription]
    target: Mapping[str, Assignment]
    # The topics of each member; members with equal subscriptions share one set.
    topic_ids: Mapping[str, frozenset[Uuid]]
    topics: Mapping[Uuid, TopicSpec]
    assignor: str

    @property
    def is_small(self) -> bool:
        """Whether the assignment is computed and installed inside one operation."""
        members = len(self.subscriptions)
        if members > MAX_MEMBERS_AT_ONCE:
            return False
        return members + sum(topic.partition_count for topic in self.topics.values()) <= MAX_SIZE_AT_ONCE


class TargetAssignments:
    """Computes the target assignments of the groups of one shard."""

    def __init__(
        self,
        consumer_groups: ConsumerGroups,
        find: Callable[[str], ConsumerGroup | None],
        context: ShardContext,
        run: Run,
    ) -> None:
        self._topics = consumer_groups.topics
        self._configs = consumer_groups.configs
        self._assignors = consumer_groups.settings.assignors
        self._gather_ms = consumer_groups.settings.gather_ms
        self._find = find
        self._context = context
        self._run = run
        # By group whose assignment is computed later, or in turns: the operations that continue after it.
        self._waiting: dict[str, list[TimedOperation]] = {}
        # Those of them whose computation has not begun: it will include all members that join until then.
        self._gathering: set[str] = set()

    @property
    def default_assignor(self) -> str:
        """The name of the assignor of a group of which no member names one."""
        return self._assignors[0]

    def is_due(self, group: ConsumerGroup, epoch: int, now_ms: int, *, at_once: bool = False) -> bool:
        """Whether a new target assignment is needed for this group epoch, and may be computed now. Kafka:
        canComputeNextTargetAssignment. `at_once`: also while a group waits for others to join."""
        group_id = group.group_id
        if epoch <= group.target_epoch:
            return False
        if group_id in self._waiting and not (at_once and group_id in self._gathering):
            return False
        interval_ms = self._configs.of(group.group_id).assignment_interval_ms
        computed_ms = group.target_timestamp_ms
        return not interval_ms or not computed_ms or now_ms >= computed_ms + interval_ms

    def gathers(self, group: ConsumerGroup, epoch: int, now_ms: int) -> bool:
        """Whether a new member waits for its assignment until others have joined, too."""
        if not self._gather_ms:
            return False
        return group.group_id in self._gathering or self.is_due(group, epoch, now_ms)

    # --- compute

    def snapshot(
        self,
        group: ConsumerGroup,
        epoch: int,
        subscriptions: Mapping[str, Subscription],
        target: Mapping[str, Assignment],
    ) -> Snapshot:
        """The input of an assignment for these members."""
        by_subscription: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
        topics: dict[Uuid, TopicSpec] = {}
        topic_ids: dict[str, frozenset[Uuid]] = {}
        for member_id, subscription in subscriptions.items():
            key = (subscription.topics, subscription.regex)
            known = by_subscription.get(key)
            if known is None:
                known = by_subscription[key] = self._add_topics(group.topics_of(subscription), topics)
            topic_ids[member_id] = known
        return Snapshot(
            epoch, subscriptions, target, topic_ids, topics, self.preferred_assignor(subscriptions.values())
        )

    def _add_topics(self, names: Iterable[str], topics: dict[Uuid, TopicSpec]) -> frozenset[Uuid]:
        found = []
        for name in names:
            topic = self._topics.find(name)
            if topic is not None:
                topics[topic.topic_id] = TopicSpec(topic.partition_count, topic.racks)
                found.append(topic.topic_id)
        return frozenset(found)

    def preferred_assignor(self, subscriptions: Iterable[Subscription]) -> str:
        """The assignor that most members name, of several the one first named; the default where none is served."""
        votes: dict[str, int] = {}
        for subscription in subscriptions:
            name = subscription.assignor
            if name in self._assignors:
                votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__) if votes else self.default_assignor

    def computed(self, group_id: str, snapshot: Snapshot, now_ms: int) -> tuple[Targets, list[Record]]:
        """Compute a small assignment at once; returns it and the records that install it."""
        targets = run_all(_compute(snapshot))
        return targets, installation(group_id, snapshot, targets, now_ms)

    # --- compute later, and in turns

    def begin(self, group_id: str, resume: TimedOperation, *, gathers: bool = False) -> None:
        """Compute the assignment of a group after the present operation, or, if it `gathers`, after other members had
        time to join. A large one is computed in turns, and `resume` runs when that is done; a small one by `resume`."""
        if group_id in self._gathering:
            self._waiting[group_id].append(resume)
            return
        self._waiting[group_id] = [resume]
        start = partial(self._start, group_id)
        if gathers:
            self._gathering.add(group_id)
            self._context.timers.schedule(("consumer-gather", group_id), self._gather_ms, start)
        else:
            self._context.submit(start)

    def forget_all(self) -> None:
        """The shard is unloaded."""
        self._waiting.clear()
        self._gathering.clear()

    def _start(self, group_id: str, now_ms: int) -> Result:
        self._gathering.discard(group_id)
        group = self._find(group_id)
        if group is None or group.epoch <= group.target_epoch:
            self._resume(group_id)
            return Result()
        subscriptions = {member_id: member.subscription for member_id, member in group.members.items()}
        snapshot = self.snapshot(group, group.epoch, subscriptions, dict(group.target))
        if snapshot.is_small:
            self._resume(group_id)  # the first of these operations computes and installs it
            return Result()
        outcome = self._context.outcome_of(self._run(_compute(snapshot)))
        outcome.then(partial(self._computed, group_id, snapshot))
        return Result()

    def _computed(self, group_id: str, snapshot: Snapshot, outcome: Deferred[Targets]) -> None:
        if outcome.cancelled:
            return
        if outcome.error is None:
            self._context.submit(partial(self._install, group_id, snapshot, outcome.result(), 0))
        else:
            _log.error(
                "Group %r: the %s assignor failed for group epoch %d: %s",
                group_id,
                snapshot.assignor,
                snapshot.epoch,
                outcome.error,
                exc_info=outcome.error,
            )
            self._resume(group_id)

    def _install(self, group_id: str, snapshot: Snapshot, targets: Targets, first: int, now_ms: int) -> Result:
        """Install an assignment from the member with this number on, unless a member has left or changed; members that
        joined wait for the next one."""
        if not self._is_current(group_id, snapshot):
            _log.debug("Group %r: the assignment for epoch %d is outdated", group_id, snapshot.epoch)
            self._resume(group_id)
            return Result()
        changed = [member_id for member_id, target in targets.items() if snapshot.target.get(member_id) != target]
        last = first + MAX_MEMBERS_AT_ONCE
        records = [changes.target(group_id, member_id, targets[member_id]) for member_id in changed[first:last]]
        if last < len(changed):
            proceed = partial(self._install, group_id, snapshot, targets, last)
            self._context.timers.schedule(("consumer-target", group_id), 0, proceed)
        else:
            records.append(changes.target_epoch(group_id, snapshot.epoch, now_ms))
            self._resume(group_id)

        def on_failure(_error: ErrorCode) -> None:
            self._context.timers.cancel(("consumer-target", group_id))
            self._resume(group_id)

        return Result(records=records, on_failure=on_failure)

    def _is_current(self, group_id: str, snapshot: Snapshot) -> bool:
        group = self._find(group_id)
        if group is None or snapshot.epoch <= group.target_epoch:
            return False
        for member_id, subscription in snapshot.subscriptions.items():
            member = group.members.get(member_id)
            if member is None or member.subscription is not subscription:
                return False
        return True

    def _resume(self, group_id: str) -> None:
        for resume in self._waiting.pop(group_id, ()):
            self._context.submit(resume)


def _compute(snapshot: Snapshot) -> Steps[Targets]:
    members: dict[str, MemberSpec] = {}
    # An assignment that was installed in part can have a partition in the targets of two members.
    known: dict[Uuid, set[int]] = {}
    for number, (member_id, subscription) in enumerate(snapshot.subscriptions.items(), 1):
        target = snapshot.target.get(member_id, NO_PARTITIONS)
        members[member_id] = MemberSpec(
            subscription.instance_id,
            subscription.rack_id,
            snapshot.topic_ids[member_id],
            without_known(target, known),
        )
        if not number % ITEMS_PER_STEP:
            yield None
    return (yield from ASSIGNORS[snapshot.assignor](members, snapshot.topics))


def without_known(target: Assignment, known: dict[Uuid, set[int]]) -> Assignment:
    """The partitions of a target that are not known from another one; all are known then."""
    overlaps = False
    for topic_id, partitions in target.items():
        overlaps = overlaps or not partitions.isdisjoint(known.get(topic_id, ()))
    if overlaps:
        rest = {topic_id: partitions - known.get(topic_id, set()) for topic_id, partitions in target.items()}
        target = {topic_id: partitions for topic_id, partitions in rest.items() if partitions}
    for topic_id, partitions in target.items():
        known.setdefault(topic_id, set()).update(partitions)
    return target


def installation(group_id: str, snapshot: Snapshot, targets: Targets, now_ms: int) -> list[Record]:
    """The records of an assignment: the targets that changed, and then their epoch."""
    present = snapshot.target
    records = [
        changes.target(group_id, member_id, assignment)
        for member_id, assignment in targets.items()
        if present.get(member_id) != assignment
    ]
    records.append(changes.target_epoch(group_id, snapshot.epoch, now_ms))
    return records
