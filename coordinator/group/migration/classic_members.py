"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that use the classic protocol in a consumer group.

Each such member proceeds on its own. Its generation is its member epoch: JoinGroup is answered at once, SyncGroup
fetches what the coordinator assigned, and a heartbeat answers REBALANCE_IN_PROGRESS when the member must join again: to
report what it owns after a revocation, or to get what others have released. No member leads. Behaviour: Kafka's
GroupMetadataManager, the parts named classicGroup…ToConsumerGroup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.config import ConsumerGroups, all_visible
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.heartbeat import Advance, Joined, compare_topics_again
from gregor.coordinator.group.consumer.member import JOINING, JOINING_EPOCH, ConsumerMember, Subscription
from gregor.coordinator.group.consumer.reconciliation import MemberState
from gregor.coordinator.group.consumer.shard import ConsumerShard
from gregor.coordinator.group.joining import UNKNOWN_MEMBER, Joiner
from gregor.coordinator.group.migration.conversion import (
    DISABLED,
    classic_metadata,
    decode_subscription,
    encode_assignment,
    owned_partitions,
)
from gregor.coordinator.group.migration.conversions import Conversions
from gregor.coordinator.group.rebalance import refused_join
from gregor.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from gregor.coordinator.history.causes import Cause, Trigger
from gregor.coordinator.result import ALL_RECORDS, Record, Result
from gregor.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from gregor.protocol.messages import (
    ConsumerProtocolSubscription,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_log = logging.getLogger(__name__)

MEMBER_ID_REQUIRED_FROM = 4
"""From this version of JoinGroup on a dynamic member joins with an id that it was sent before (KIP-394)."""


class ClassicMembers:
    """The requests of the classic protocol to consumer groups that have members."""

    def __init__(
        self,
        consumer_groups: ConsumerGroups,
        consumers: ConsumerShard,
        conversions: Conversions,
        new_member_id: Callable[[], str],
    ) -> None:
        self._topics = consumer_groups.topics
        self._settings = consumer_groups.settings
        self._heartbeats = consumers.heartbeats
        self._sessions = consumers.sessions
        self._find = consumers.find
        self._conversions = conversions
        self._new_member_id = new_member_id

    # --- join

    def join(self, joiner: Joiner, now_ms: int) -> Result:
        """Answers with a JoinGroupResponse."""
        return self._try_to_join(joiner, joiner.request.member_id or self._new_member_id(), now_ms, resumed=False)

    def _try_to_join(self, joiner: Joiner, member_id: str, now_ms: int, *, resumed: bool) -> Result:
        """`resumed`: the member joined before, and waited for its assignment."""
        try:
            group = self._find(joiner.request.group_id)
            if group is None:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "The group was converted meanwhile.")
            return self._join(group, joiner, member_id, now_ms, resumed=resumed)
        except KafkaError as error:
            _log.info("Group %r: classic member %r cannot join: %s", joiner.request.group_id, member_id, error)
            return Result(refused_join(error.code, joiner.request.member_id))

    def _join(self, group: ConsumerGroup, joiner: Joiner, member_id: str, now_ms: int, *, resumed: bool) -> Result:
        request = joiner.request
        self._check(group, joiner, member_id)
        anonymous = request.member_id == UNKNOWN_MEMBER and not resumed
        if anonymous and request.group_instance_id is None and joiner.version >= MEMBER_ID_REQUIRED_FROM:
            return Result(refused_join(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        embedded = _embedded(joiner)
        records: list[Record] = []
        replaced = group.static_member(request.group_instance_id)
        member = self._member(group, request.group_instance_id, member_id, anonymous, records)
        new = _subscription(member.subscription, joiner, embedded)
        if replaced is not None and replaced.member_id != member_id:
            converted = self._replace(group, replaced, ConsumerMember(group.group_id, member_id, new, JOINING), now_ms)
            if converted is not None:
                return converted
        owned = owned_partitions(embedded, self._topics)
        advance = Advance(group, member, new, owned, all_visible, records)
        assignment = self._heartbeats.advance(advance, now_ms, may_wait=not resumed)
        if assignment is None:
            again = partial(self._try_to_join, joiner, member_id, resumed=True)
            return self._heartbeats.park(group, again, records)
        self._sessions.joined(group.group_id, member_id)
        self._sessions.await_sync(group.group_id, member_id, joiner.rebalance_timeout_ms)
        known = group.members.get(member_id)
        if known is not None:
            self._sessions.watch(group, known)
        response = _joined(member_id, assignment.epoch, next(iter(joiner.protocols)))
        return Result(response, records, on_failure=partial(compare_topics_again, group), confirms_below=ALL_RECORDS)

    def _check(self, group: ConsumerGroup, joiner: Joiner, member_id: str) -> None:
        """Raise KafkaError if the group has no place for the member, or does not speak its protocols."""
        if self._settings.migration_policy == DISABLED:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration"
                " is disabled.",
            )
        if len(group.members) >= self._settings.max_size and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self._settings.max_size} members.",
            )
        classic = [member.subscription.classic for member in group.members.values()]
        offers = [{one.name for one in of.supported_protocols} for of in classic if of is not None]
        if joiner.request.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
            all(name in offer for offer in offers) for name in joiner.protocols
        ):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
            )

    def _member(
        self, group: ConsumerGroup, instance_id: str | None, member_id: str, anonymous: bool, records: list[Record]
    ) -> Joined:
        if instance_id is None:
            known = group.members.get(member_id)
            if known is None:
                return Joined(member_id, Subscription(), JOINING, is_new=True)
            return Joined(member_id, known.subscription, known.assignment)
        present = group.static_member(instance_id)
        if not anonymous:
            present = _sender(group, member_id, instance_id)
            return Joined(member_id, present.subscription, present.assignment)
        if present is None:
            return Joined(member_id, Subscription(), JOINING, is_new=True)
        assignment = present.assignment._replace(epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        records += changes.member_tombstones(group.group_id, present.member_id)
        records.append(changes.subscription(group.group_id, member_id, present.subscription))
        records.append(changes.target(group.group_id, member_id, group.target_of(present.member_id)))
        records.append(changes.assignment(group.group_id, member_id, assignment))
        return Joined(member_id, present.subscription, assignment, replaces=present.member_id)

    def _replace(self, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, now_ms: int) -> Result | None:
        """Make a classic group if `old`, a static member that comes back as `new`, was the last that used the consumer
        protocol; None if it stays a consumer group. Only another subscription, or a group in which some member does not
        own its target yet, causes a rebalance."""
        others = group.members.keys() - {old.member_id}
        uses_classic = all(group.members[member_id].uses_classic_protocol for member_id in others)
        if old.uses_classic_protocol or not uses_classic or not self._conversions.allows_replacement(group):
            return None
        is_reconciled = group.epoch == group.target_epoch and all(
            _owns_target(group, one) for one in group.members.values()
        )
        cause = None
        if not is_reconciled or new.subscription.topics != group.topics_of(old.subscription):
            cause = Cause(Trigger.PROTOCOL_CHANGED, detail="a static member came back with the classic protocol")
        records = self._conversions.downgraded(group, {old.member_id}, cause, now_ms, new)
        return Result(_joined(new.member_id, group.epoch, records[-1].value.protocol), records)

    # --- sync, heartbeat

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> Result:
        """Answers with a SyncGroupResponse."""
        try:
            member = _classic_sender(group, request.member_id, request.group_instance_id, request.generation_id)
            classic = member.subscription.classic
            assert classic is not None
            protocol = classic.supported_protocols[0]
            if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
                None,
                protocol.name,
            ):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            assignment = member.assignment
            if group.target_epoch > assignment.epoch and assignment.state is not MemberState.UNREVOKED_PARTITIONS:
                self._sessions.await_join(group.group_id, member)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            return Result(SyncGroupResponse(error_code=error.code))
        self._sessions.synced(group.group_id, member.member_id)
        self._sessions.watch(group, member)
        return Result(
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=encode_assignment(assignment.assigned, protocol.metadata, self._topics),
            ),
            confirms_below=ALL_RECORDS,
        )

    def heartbeat(
        self, group: ConsumerGroup, generation: int, member_id: str, group_instance_id: str | None, now_ms: int
    ) -> ErrorCode:
        """Restart a member's session; REBALANCE_IN_PROGRESS where it must join again."""
        try:
            member = _classic_sender(group, member_id, group_instance_id, generation)
        except KafkaError as error:
            return error.code
        self._sessions.watch(group, member)
        assignment = member.assignment
        if (
            assignment.epoch < group.target_epoch
            or assignment.state is MemberState.UNREVOKED_PARTITIONS
            or (assignment.state is MemberState.UNRELEASED_PARTITIONS and _has_all_released(group, member))
            or self._heartbeats.is_outdated(group, now_ms)
        ):
            self._sessions.await_join(group.group_id, member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # --- leave

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int) -> Result:
        """Answers with a LeaveGroupResponse, one entry per member of the request. Members of either protocol leave."""
        leaving: dict[str, ConsumerMember] = {}
        answers = []
        for who in request.members:
            code = ErrorCode.NONE
            try:
                member = _leaver(group, who)
                leaving[member.member_id] = member
                _log.info(
                    "Group %r: member %r leaves: %r", group.group_id, member.member_id, who.reason or "not provided"
                )
            except KafkaError as error:
                code = error.code
            answers.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=who.member_id, group_instance_id=who.group_instance_id, error_code=code
                )
            )
        records = self._sessions.fence(group, list(leaving.values()), now_ms) if leaving else []
        return Result(LeaveGroupResponse(members=answers), records)


def _embedded(joiner: Joiner) -> ConsumerProtocolSubscription:
    """The subscription in the first protocol of a join. Raises KafkaError."""
    try:
        return decode_subscription(next(iter(joiner.protocols.values())))
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"its subscription cannot be decoded: {error}") from error


def _subscription(old: Subscription, joiner: Joiner, embedded: ConsumerProtocolSubscription) -> Subscription:
    """The subscription of a classic member after its join; a regular expression of its former life is gone."""
    request = joiner.request
    return Subscription(
        instance_id=request.group_instance_id or old.instance_id,
        rack_id=embedded.rack_id or old.rack_id,
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        topics=frozenset(embedded.topics),
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        assignor=old.assignor,
        classic=classic_metadata(request.session_timeout_ms, joiner.protocols),
    )


def _joined(member_id: str, generation: int, protocol: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        member_id=member_id,
        generation_id=generation,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol or None,
        leader="",
        members=[],
    )


def _sender(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member that sent a request. Raises KafkaError if it is unknown, or another has its instance id."""
    if instance_id is None:
        member = group.members.get(member_id)
    else:
        member = group.static_member(instance_id)
        if member is not None and member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {instance_id or member_id} is not a member of group {group.group_id}."
        )
    return member


def _classic_sender(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    member = _sender(group, member_id, instance_id)
    if not member.uses_classic_protocol:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _leaver(group: ConsumerGroup, who: LeaveGroupRequest.MemberIdentity) -> ConsumerMember:
    """A member that a LeaveGroup request names; an administrator names a static one by its instance id alone."""
    if who.group_instance_id is not None and who.member_id == UNKNOWN_MEMBER:
        member = group.static_member(who.group_instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {who.group_instance_id} is unknown.")
        return member
    return _sender(group, who.member_id, who.group_instance_id)


def _owns_target(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a member, perhaps a static one that is away, owns its target and nothing else."""
    assignment = member.assignment
    owned = {topic_id: frozenset(indexes) for topic_id, indexes in assignment.assigned.items()}
    return owned == group.target_of(member.member_id) and not assignment.pending_revocation


def _has_all_released(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether no other member owns a partition of the target any more. Kafka: waitingOnUnreleasedPartition."""
    assigned = member.assignment.assigned
    return all(
        index in assigned.get(topic_id, ()) or group.is_free(topic_id, index)
        for topic_id, indexes in group.target_of(member.member_id).items()
        for index in indexes
    )
