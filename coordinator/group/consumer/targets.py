"""The target assignment of a group: when a new one is computed, from what, and the records that install it.

A small one is computed inside the operation that needs it. A large one is computed in turns of the event loop, from a
snapshot, and installed by an operation of its own if the members that it is for are still the same; the heartbeat that
began it is answered then. Kafka: TargetAssignmentBuilder; KIP-1263 for the interval.
"""

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
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import ITEMS_PER_STEP, Steps, run_all

_log = logging.getLogger(__name__)

MAX_SIZE_AT_ONCE = 200
"""Members and partitions of an assignment that is computed inside an operation; each costs some 5 to 10 us."""

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
    def size(self) -> int:
        """Members and partitions, which decide how long the computation lasts."""
        return len(self.subscriptions) + sum(topic.partition_count for topic in self.topics.values())


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
        self._find = find
        self._context = context
        self._run = run
        # By group whose assignment is computed in turns: the operations that continue after it.
        self._waiting: dict[str, list[TimedOperation]] = {}

    @property
    def default_assignor(self) -> str:
        """The name of the assignor of a group of which no member names one."""
        return self._assignors[0]

    def is_due(self, group: ConsumerGroup, epoch: int, now_ms: int) -> bool:
        """Whether a new target assignment is needed for this group epoch, and may be computed now. Kafka:
        canComputeNextTargetAssignment."""
        if epoch <= group.target_epoch or group.group_id in self._waiting:
            return False
        interval_ms = self._configs.of(group.group_id).assignment_interval_ms
        computed_ms = group.target_timestamp_ms
        return not interval_ms or not computed_ms or now_ms >= computed_ms + interval_ms

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

    # --- compute in turns

    def begin(self, group_id: str, resume: TimedOperation) -> None:
        """Compute the assignment of a group in turns, after the present operation; `resume` runs when it is done."""
        self._waiting[group_id] = [resume]
        self._context.submit(partial(self._start, group_id))

    def forget_all(self) -> None:
        """The shard is unloaded."""
        self._waiting.clear()

    def _start(self, group_id: str, now_ms: int) -> Result:
        group = self._find(group_id)
        if group is None or group.epoch <= group.target_epoch:
            self._resume(group_id)
            return Result()
        subscriptions = {member_id: member.subscription for member_id, member in group.members.items()}
        snapshot = self.snapshot(group, group.epoch, subscriptions, dict(group.target))
        outcome = self._context.outcome_of(self._run(_compute(snapshot)))
        outcome.then(partial(self._computed, group_id, snapshot))
        return Result()

    def _computed(self, group_id: str, snapshot: Snapshot, outcome: Deferred[Targets]) -> None:
        if outcome.cancelled:
            return
        if outcome.error is not None:
            _log.error(
                "Group %r: the %s assignor failed for group epoch %d: %s",
                group_id,
                snapshot.assignor,
                snapshot.epoch,
                outcome.error,
                exc_info=outcome.error,
            )
        else:
            self._context.submit(partial(self._install, group_id, snapshot, outcome.result()))
        self._resume(group_id)

    def _install(self, group_id: str, snapshot: Snapshot, targets: Targets, now_ms: int) -> Result:
        """Install what was computed, unless a member has left or changed; members that joined wait for the next."""
        group = self._find(group_id)
        if group is None or snapshot.epoch <= group.target_epoch:
            return Result()
        for member_id, subscription in snapshot.subscriptions.items():
            member = group.members.get(member_id)
            if member is None or member.subscription is not subscription:
                _log.debug("Group %r: the assignment for epoch %d is outdated", group_id, snapshot.epoch)
                return Result()
        return Result(records=installation(group_id, snapshot, targets, now_ms), atomic=False)

    def _resume(self, group_id: str) -> None:
        for resume in self._waiting.pop(group_id, ()):
            self._context.submit(resume)


def _compute(snapshot: Snapshot) -> Steps[Targets]:
    members: dict[str, MemberSpec] = {}
    for number, (member_id, subscription) in enumerate(snapshot.subscriptions.items(), 1):
        members[member_id] = MemberSpec(
            subscription.instance_id,
            subscription.rack_id,
            snapshot.topic_ids[member_id],
            snapshot.target.get(member_id, NO_PARTITIONS),
        )
        if not number % ITEMS_PER_STEP:
            yield None
    return (yield from ASSIGNORS[snapshot.assignor](members, snapshot.topics))


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
