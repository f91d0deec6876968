"""ConsumerGroupHeartbeat (v0 to v1): members join, report what they own, learn what to own, and leave (KIP-848).

A heartbeat in three steps: it creates or updates the member, which may begin a new group epoch; it has a new target
assignment computed if that is older than the group epoch; it reconciles the member with its target. Behaviour: Kafka's
GroupMetadataManager.consumerGroupHeartbeat and consumerGroupLeave.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.assignors.assignor import NO_PARTITIONS, Assignment
from gregor.coordinator.group.consumer.config import ConsumerGroups, VisibleTopics
from gregor.coordinator.group.consumer.group import ConsumerGroup, is_reconciled
from gregor.coordinator.group.consumer.member import AWAY_EPOCH, JOINING, JOINING_EPOCH, ConsumerMember, Subscription
from gregor.coordinator.group.consumer.metadata_hash import TopicHashes
from gregor.coordinator.group.consumer.reconciliation import MemberAssignment, Target, reconcile
from gregor.coordinator.group.consumer.sessions import Conversions, Sessions
from gregor.coordinator.group.consumer.subscriptions import ExpressionChange, Expressions
from gregor.coordinator.group.consumer.targets import TargetAssignments
from gregor.coordinator.ports import TimedOperation, TopicView
from gregor.coordinator.result import ALL_RECORDS, Record, Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

_log = logging.getLogger(__name__)

Request = ConsumerGroupHeartbeatRequest
Response = ConsumerGroupHeartbeatResponse


class Sender(NamedTuple):
    """Where a heartbeat came from, and which topics its sender may describe."""

    client_id: str
    client_host: str
    visible: VisibleTopics


class Joined(NamedTuple):
    """A member as a heartbeat finds it. `replaces` is the id of the static member that it replaces."""

    member_id: str
    subscription: Subscription
    assignment: MemberAssignment
    is_new: bool = False
    replaces: str | None = None


class Advance(NamedTuple):
    """A member with its new subscription, the partitions that it reports, and the list for its records."""

    group: ConsumerGroup
    member: Joined
    subscription: Subscription
    owned: Assignment | None
    visible: VisibleTopics
    records: list[Record]


class Heartbeats:
    """The heartbeats of the consumer groups of one shard."""

    def __init__(
        self,
        consumer_groups: ConsumerGroups,
        find: Callable[[str], ConsumerGroup | None],
        conversions: Conversions,
        hashes: TopicHashes,
        sessions: Sessions,
        targets: TargetAssignments,
        expressions: Expressions,
        new_member_id: Callable[[], str],
    ) -> None:
        self._topics: TopicView = consumer_groups.topics
        self._configs = consumer_groups.configs
        self._max_size = consumer_groups.settings.max_size
        self._are_served = consumer_groups.are_served
        self._admit_members = consumer_groups.admit_members
        self._find = find
        self._conversions = conversions
        self._hashes = hashes
        self._sessions = sessions
        self._targets = targets
        self._expressions = expressions
        self._new_member_id = new_member_id
        # Heartbeats that wait for an assignment that is computed in turns.
        self._parked: dict[Deferred[Any], None] = {}

    def fail_parked(self, error: ErrorCode) -> None:
        """The shard is unloaded."""
        for pending in list(self._parked):
            pending.fail(KafkaError(error))

    # --- any heartbeat

    def heartbeat(self, request: Request, sender: Sender, now_ms: int) -> Result:
        """Answers with a ConsumerGroupHeartbeatResponse."""
        try:
            if request.member_epoch < JOINING_EPOCH:
                return self._leave(request, now_ms)
            return self._beat(request, sender, now_ms, resumed=False)
        except KafkaError as error:
            return Result(refusal(error))

    def _beat(self, request: Request, sender: Sender, now_ms: int, *, resumed: bool) -> Result:
        """`resumed`: the member joined before, and waited for its assignment."""
        self._check_admission(request)
        records: list[Record] = []
        joining = request.member_epoch == JOINING_EPOCH and not resumed
        group = self._group(request.group_id, joining, records)
        member = self._member(group, request, joining, records)
        new = _updated(member.subscription, request, sender)
        owned: Assignment | None = None
        if request.topic_partitions is not None:
            owned = {topic.topic_id: frozenset(topic.partitions) for topic in request.topic_partitions}
        advance = Advance(group, member, new, owned, sender.visible, records)
        gathers = joining and member.replaces is None
        assignment = self.advance(advance, now_ms, may_wait=not resumed, gathers=gathers)
        if assignment is None:
            request = request.replaced(member_id=member.member_id)
            return self.park(group, partial(self._beat_again, request, sender), records, gathers=gathers)
        known = group.members.get(member.member_id)
        if known is not None:
            self._sessions.watch(group, known)
        response = self._response(group.group_id, request, member, assignment)
        learns = response.assignment is not None or response.member_epoch != request.member_epoch
        return Result(
            response,
            records,
            on_failure=partial(compare_topics_again, group) if records else None,
            confirms_below=ALL_RECORDS if learns else 0,
        )

    def _check_admission(self, request: Request) -> None:
        """Raise KafkaError while consumer groups end. The downgrade of group.version may have begun since the request
        was received: here no other operation of the group is between the check and the change."""
        if self._admit_members():
            return
        if not self._are_served():
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not served any more.")
        group = self._find(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if member is None and group is not None and request.instance_id is not None:
            member = group.static_member(request.instance_id)
        if member is None or member.uses_classic_protocol:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "A downgrade of group.version is under way: try again when it has ended.",
            )

    def _beat_again(self, request: Request, sender: Sender, now_ms: int) -> Result:
        try:
            return self._beat(request, sender, now_ms, resumed=True)
        except KafkaError as error:
            return Result(refusal(error))

    def advance(self, one: Advance, now_ms: int, *, may_wait: bool, gathers: bool = False) -> MemberAssignment | None:
        """Add the records of a member that joins or reports; return its assignment, or None if the target must be
        computed first: in turns, or for several members together if the member `gathers`. Raises KafkaError if its
        regular expression is invalid."""
        group, member, new, records = one.group, one.member, one.subscription, one.records
        old = member.subscription
        if member.is_new or new != old:
            records.append(changes.subscription(group.group_id, member.member_id, new))
        change = self._expressions.update(group, old, new, records)
        if new.regex or group.regex_counts:
            regexes = group.regexes_with((old,), (new,))
            self._expressions.refresh_if_due(group, regexes, one.visible, now_ms)
        changed = new.topics != old.topics or change is ExpressionChange.RESOLVED
        epoch = self._epoch(group, old, new, changed, records, now_ms)
        if gathers and self._targets.gathers(group, epoch, now_ms):
            return None
        replaced_target = group.target_of(member.replaces or member.member_id)
        target_epoch, target = group.target_epoch, replaced_target
        at_once = member.is_new or changed or not may_wait
        if self._targets.is_due(group, epoch, now_ms, at_once=at_once):
            subscriptions = {member_id: known.subscription for member_id, known in group.members.items()}
            present = group.target
            if member.replaces is not None:
                subscriptions.pop(member.replaces, None)
                present = {**present, member.member_id: replaced_target}
            subscriptions[member.member_id] = new
            snapshot = self._targets.snapshot(group, epoch, subscriptions, present)
            if snapshot.is_small:
                targets, installation = self._targets.computed(group.group_id, snapshot, now_ms)
                records += installation
                target_epoch, target = epoch, targets.get(member.member_id, NO_PARTITIONS)
            elif may_wait:
                return None
        assignment = member.assignment
        if changed or change is not ExpressionChange.NONE or not is_reconciled(assignment, target_epoch):
            goal = Target(target_epoch, target, self._topic_ids(group, new))
            assignment = reconcile(assignment, goal, one.owned, group.is_free)
        if assignment is not member.assignment:
            records.append(changes.assignment(group.group_id, member.member_id, assignment))
        return assignment

    def is_outdated(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether the next member that joins has a new target assignment computed, which heartbeats of the consumer
        protocol do by themselves. (In Apache Kafka 4.3 a group of classic members alone waits for some other join.)"""
        if group.epoch > group.target_epoch:
            return self._targets.is_due(group, group.epoch, now_ms)
        if now_ms < group.refresh_at_ms:
            return False
        if self._hashes.of(group.subscribed_topics) != group.metadata_hash:
            return True
        group.refreshed(now_ms)
        return False

    # --- the group and the member

    def _group(self, group_id: str, joining: bool, records: list[Record]) -> ConsumerGroup:
        group = self._find(group_id)
        if group is not None:
            return group
        if not joining:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return self._conversions.upgrade(group_id, records) or ConsumerGroup(group_id)

    def _member(self, group: ConsumerGroup, request: Request, joining: bool, records: list[Record]) -> Joined:
        member_id = request.member_id
        if len(group.members) >= self._max_size and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self._max_size} members.",
            )
        if not member_id:
            member_id = self._new_member_id()
        if request.instance_id is not None:
            return self._static_member(group, request, member_id, request.instance_id, joining, records)
        member = group.members.get(member_id)
        if member is None:
            if joining:
                _log.debug("Group %r: member %r joins", group.group_id, member_id)
                return Joined(member_id, Subscription(), JOINING, is_new=True)
            raise _unknown_member(group.group_id, member_id)
        _check_epoch(member, request)
        return Joined(member_id, member.subscription, member.assignment)

    def _static_member(
        self,
        group: ConsumerGroup,
        request: Request,
        member_id: str,
        instance_id: str,
        joining: bool,
        records: list[Record],
    ) -> Joined:
        present = group.static_member(instance_id)
        if not joining:
            present = _static_sender(present, member_id, instance_id)
            _check_epoch(present, request)
            return Joined(member_id, present.subscription, present.assignment)
        if present is None:
            _log.info("Group %r: static member %r joins as %r", group.group_id, instance_id, member_id)
            known = group.members.get(member_id)
            if known is not None:
                return Joined(member_id, known.subscription, known.assignment)
            return Joined(member_id, Subscription(), JOINING, is_new=True)
        if not present.uses_classic_protocol and present.epoch != AWAY_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance"
                f" id is owned by {present.member_id} member.",
            )
        _log.info(
            "Group %r: static member %r is back as %r instead of %r",
            group.group_id,
            instance_id,
            member_id,
            present.member_id,
        )
        assignment = present.assignment._replace(epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        records += changes.member_tombstones(group.group_id, present.member_id)
        records.append(changes.subscription(group.group_id, member_id, present.subscription))
        records.append(changes.target(group.group_id, member_id, group.target_of(present.member_id)))
        records.append(changes.assignment(group.group_id, member_id, assignment))
        return Joined(member_id, present.subscription, assignment, replaces=present.member_id)

    # --- epochs and assignments

    def _epoch(
        self,
        group: ConsumerGroup,
        old: Subscription,
        new: Subscription,
        changed: bool,
        records: list[Record],
        now_ms: int,
    ) -> int:
        """The group epoch after this heartbeat. Kafka: updateSubscriptionMetadata."""
        if not changed and now_ms < group.refresh_at_ms:
            return group.epoch
        metadata_hash = self._hashes.of(group.subscribed_topics_with((old,), (new,)))
        group.refreshed(now_ms)
        if group.has_partition_metadata:
            records.append(changes.no_partition_metadata(group.group_id))
        if not changed and metadata_hash == group.metadata_hash:
            return group.epoch
        epoch = group.epoch + 1
        records.append(changes.group_epoch(group.group_id, epoch, metadata_hash))
        cause = "a member changed what it subscribes to" if changed else "its topics changed"
        # The history has a line about each epoch, with its cause and the member.
        _log.debug("Group %r: group epoch %d: %s", group.group_id, epoch, cause)
        return epoch

    def _topic_ids(self, group: ConsumerGroup, subscription: Subscription) -> frozenset[Uuid]:
        found = (self._topics.find(name) for name in group.topics_of(subscription))
        return frozenset(topic.topic_id for topic in found if topic is not None)

    def park(
        self, group: ConsumerGroup, again: TimedOperation, records: list[Record], *, gathers: bool = False
    ) -> Result:
        """Answer with what `again` returns once the assignment is computed: a member that joins would else have
        nothing until its next heartbeat."""
        pending: Deferred[Any] = Deferred()
        self._parked[pending] = None
        pending.then(lambda _: self._parked.pop(pending, None))
        self._targets.begin(group.group_id, partial(self._resume, again, pending), gathers=gathers)

        def on_failure(error: ErrorCode) -> None:
            pending.fail(KafkaError(error))
            group.refresh_soon()

        return Result(pending, records, on_failure=on_failure)

    def _resume(self, again: TimedOperation, pending: Deferred[Any], now_ms: int) -> Result:
        if pending.done:
            return Result()
        return again(now_ms).answer_through(pending)

    def _response(self, group_id: str, request: Request, member: Joined, assignment: MemberAssignment) -> Response:
        response = Response(
            member_id=member.member_id,
            member_epoch=assignment.epoch,
            heartbeat_interval_ms=self._configs.of(group_id).heartbeat_interval_ms,
        )
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if request.member_epoch == JOINING_EPOCH or is_full or assignment.assigned != member.assignment.assigned:
            response.assignment = Response.Assignment(
                topic_partitions=[
                    Response.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in assignment.assigned.items()
                ]
            )
        return response

    # --- leave

    def _leave(self, request: Request, now_ms: int) -> Result:
        group = self._find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                raise _unknown_member(group.group_id, request.member_id)
        else:
            present = group.static_member(request.instance_id)
            member = _static_sender(present, request.member_id, request.instance_id)
        response = Response(member_id=member.member_id, member_epoch=request.member_epoch)
        if request.instance_id is not None and request.member_epoch == AWAY_EPOCH:
            _log.info("Group %r: static member %r leaves for a while", group.group_id, member.member_id)
            # Its replacement begins with epoch 0, and no partition may have a later one than its owner.
            assigned = {topic_id: dict.fromkeys(owned, 0) for topic_id, owned in member.assignment.assigned.items()}
            away = member.assignment._replace(epoch=AWAY_EPOCH, assigned=assigned, pending_revocation={})
            return Result(response, [changes.assignment(group.group_id, member.member_id, away)])
        _log.info("Group %r: member %r leaves", group.group_id, member.member_id)
        return Result(response, self._sessions.fence(group, [member], now_ms))


def compare_topics_again(group: ConsumerGroup, _error: ErrorCode) -> None:
    """The records of an advance could not be written, perhaps a new metadata hash among them."""
    group.refresh_soon()


def refusal(error: KafkaError) -> Response:
    """The response with an error and its text."""
    return Response(error_code=error.code, error_message=error.message or None)


def _unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def _static_sender(present: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member that sent a request; raises KafkaError if the instance id is unknown or another member has
    it."""
    if present is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if present.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {present.member_id}.",
        )
    return present


def _check_epoch(member: ConsumerMember, request: Request) -> None:
    """Raise KafkaError unless the request has the present epoch, the one before in a retry, or 0 to rejoin."""
    received, present = request.member_epoch, member.assignment
    if received in (JOINING_EPOCH, present.epoch):
        return
    if received > present.epoch:
        comparison = "greater"
    elif received == present.previous_epoch and _is_subset(request, present.assigned):
        # The response with the present epoch may have been lost.
        return
    else:
        comparison = "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({received}) than the one known by the group"
        f" coordinator ({present.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(request: Request, assigned: Mapping[Uuid, Mapping[int, int]]) -> bool:
    """Whether the sender reports what it owns, and owns nothing else than what is assigned to it."""
    if request.topic_partitions is None:
        return False
    return all(
        topic.topic_id in assigned and assigned[topic.topic_id].keys() >= set(topic.partitions)
        for topic in request.topic_partitions
    )


def _updated(present: Subscription, request: Request, sender: Sender) -> Subscription:
    """The subscription after a heartbeat, which names only what changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return Subscription(
        present.instance_id if request.instance_id is None else request.instance_id,
        present.rack_id if request.rack_id is None else request.rack_id,
        sender.client_id,
        sender.client_host,
        present.topics if names is None else frozenset(names),
        present.regex if regex is None else regex,
        present.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        present.assignor if request.server_assignor is None else request.server_assignor,
        None,
    )
