"""The usual heartbeat of a consumer group, which changes nothing but the end of the member's session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gregor.coordinator.group.consumer.config import ConsumerGroupConfig, GroupConfigs
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.member import JOINING_EPOCH, ConsumerMember, Subscription
from gregor.coordinator.group.consumer.reconciliation import MemberAssignment, MemberState
from gregor.coordinator.group.consumer.sessions import Sessions
from gregor.coordinator.ports import Timers
from gregor.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

Request = ConsumerGroupHeartbeatRequest
Response = ConsumerGroupHeartbeatResponse


class Beat(NamedTuple):
    """A member that has reached the target of its group, as it was when it sent a heartbeat."""

    group: ConsumerGroup
    member: ConsumerMember
    subscription: Subscription
    assignment: MemberAssignment
    config: ConsumerGroupConfig


class SteadyHeartbeats:
    """The usual heartbeats of the consumer groups of one shard. They need no operation: the answer repeats the epoch of
    the request, which is committed."""

    def __init__(
        self,
        configs: GroupConfigs,
        find: Callable[[str], ConsumerGroup | None],
        sessions: Sessions,
        timers: Timers,
    ) -> None:
        self._configs = configs
        self._find = find
        self._sessions = sessions
        self._timers = timers

    def answer(self, request: Request, client_id: str, client_host: str, now_ms: int) -> Response | None:
        """Answer a heartbeat that changes nothing; None if it may change something."""
        beat = self._sender(request, client_id, client_host, now_ms)
        if beat is None:
            return None
        self._sessions.watch(beat.group, beat.member)
        return Response(
            member_id=beat.member.member_id,
            member_epoch=beat.assignment.epoch,
            heartbeat_interval_ms=beat.config.heartbeat_interval_ms,
        )

    def _sender(self, request: Request, client_id: str, client_host: str, now_ms: int) -> Beat | None:
        group = self._find(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if group is None or member is None:
            return None
        assignment = member.assignment
        subscription = member.subscription
        if (
            request.member_epoch != assignment.epoch
            or assignment.state is not MemberState.STABLE
            or assignment.epoch <= JOINING_EPOCH
            or not _is_at_rest(group, assignment, now_ms)
            or request.rebalance_timeout_ms != -1
            or request.subscribed_topic_names is not None
            or request.subscribed_topic_regex is not None
            or request.server_assignor is not None
            or subscription.client_id != client_id
            or subscription.client_host != client_host
            or subscription.classic is not None
            or request.rack_id not in (None, subscription.rack_id)
            or request.instance_id not in (None, subscription.instance_id)
        ):
            return None
        return Beat(group, member, subscription, assignment, self._configs.of(group.group_id))

    # --- the same heartbeat again

    def renewal(
        self, request: Request, client_id: str, client_host: str, clock_ms: Callable[[], int]
    ) -> Callable[[], bool] | None:
        """Return what serves the same heartbeat when it comes again: it restarts the session and returns True, if the
        answer would be the same; else it does nothing. None if the heartbeat may change something now."""
        beat = self._sender(request, client_id, client_host, clock_ms())
        return None if beat is None else partial(self._renew, beat, clock_ms)

    def _renew(self, beat: Beat, clock_ms: Callable[[], int]) -> bool:
        group, member, subscription, assignment, config = beat
        # A member of an unloaded shard, or of a group that is no longer a consumer group, has no timer.
        return (
            group.members.get(member.member_id) is member
            and member.subscription is subscription
            and member.assignment is assignment
            and _is_at_rest(group, assignment, clock_ms())
            and self._configs.of(group.group_id) is config
            and self._timers.restart(member.session_key, config.session_timeout_ms)
        )


def _is_at_rest(group: ConsumerGroup, assignment: MemberAssignment, now_ms: int) -> bool:
    """Whether the assignment is that of the group epoch, and neither topics nor expressions must be compared now."""
    target_epoch = group.target_epoch
    return (
        assignment.epoch == target_epoch
        and group.epoch <= target_epoch
        and now_ms < group.refresh_at_ms
        and not (group.regex_counts and now_ms >= group.expressions_due_ms)
    )
