"""The requests of the consumer protocol on a broker: checks, and the way to the shard that has the group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from gregor.coordinator.group.consumer.config import ConsumerGroups, VisibleTopics, all_visible
from gregor.coordinator.group.consumer.heartbeat import Sender, refusal
from gregor.coordinator.group.consumer.member import AWAY_EPOCH, JOINING_EPOCH, LEFT_EPOCH
from gregor.coordinator.group.consumer.shard import ConsumerShard
from gregor.coordinator.result import Result, answered
from gregor.coordinator.runtime import CoordinatorRuntime
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from gregor.protocol.turns import Gate

FIRST_WITH_MEMBER_ID = 1
"""From this version on members make their id themselves (KIP-1082)."""


class HasConsumers(Protocol):
    """A shard of groups."""

    @property
    def consumers(self) -> ConsumerShard: ...


class ConsumerRequests:
    """Serves the consumer groups of the partitions that this broker leads."""

    def __init__(
        self,
        consumer_groups: ConsumerGroups,
        runtime: CoordinatorRuntime[Any],
        partition_of: Callable[[str], int],
        clock_ms: Callable[[], int],
        gate: Gate,
    ) -> None:
        """`partition_of` finds the partition of a group; it raises KafkaError when the coordinator is closed."""
        self._topics = consumer_groups.topics
        self._assignors = consumer_groups.settings.assignors
        self._runtime = runtime
        self._partition_of = partition_of
        self._clock_ms = clock_ms
        self._gate = gate
        self._known_topics = set(consumer_groups.topics.names())

    # --- heartbeat

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str | None,
        client_host: str,
        version: int,
        visible: VisibleTopics | None,
    ) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
        """Answer a heartbeat; with an error in the response."""
        client_id = client_id or ""
        try:
            partition = self._partition_of(request.group_id)
            if request.member_epoch > JOINING_EPOCH:
                shard: HasConsumers = self._runtime.shard(partition)
                steady = shard.consumers.steady.answer(request, client_id, client_host, self._clock_ms())
                if steady is not None:
                    return steady
            self._check(request, version)
        except KafkaError as error:
            return refusal(error)
        sender = Sender(client_id, client_host, visible or all_visible)
        pending = self._runtime.start(
            partition, lambda shard, now: shard.consumers.heartbeats.heartbeat(request, sender, now)
        )
        return answered(pending, refusal)

    def renewal(
        self, request: ConsumerGroupHeartbeatRequest, client_id: str | None, client_host: str
    ) -> Callable[[], bool] | None:
        """Return what restarts the session of a member that sends the same heartbeat again; it returns False, and does
        nothing, unless the answer would be the same. None if the heartbeat may change something."""
        try:
            shard: HasConsumers = self._runtime.shard(self._partition_of(request.group_id))
        except KafkaError:
            return None
        return shard.consumers.steady.renewal(request, client_id or "", client_host, self._clock_ms)

    def _check(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        """Raise KafkaError for a request that no group can serve. Kafka: GroupCoordinatorService."""
        epoch = request.member_epoch
        if version >= FIRST_WITH_MEMBER_ID or epoch > JOINING_EPOCH or epoch == LEFT_EPOCH:
            _check_not_blank(request.member_id, "MemberId")
        _check_not_blank(request.group_id, "GroupId")
        _check_not_blank(request.instance_id, "InstanceId")
        _check_not_blank(request.rack_id, "RackId")
        if epoch == JOINING_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif epoch == AWAY_EPOCH:
            if request.instance_id is None:
                raise _invalid("InstanceId can't be null.")
        elif epoch < AWAY_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        assignor = request.server_assignor
        if assignor is not None and assignor not in self._assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(self._assignors)}.",
            )

    # --- the end of all

    async def end_groups(self) -> None:
        """Make classic groups of all consumer groups that are loaded; those that are loading follow after that.
        Raises KafkaError where that could not be written: it is tried again until it is."""
        turns = self._gate.turns()
        failed: KafkaError | None = None
        for partition in self._runtime.partitions():
            try:
                group_ids = self._runtime.shard(partition).consumers.group_ids()
            except KafkaError:  # it is loading, or no longer led
                continue
            for group_id in group_ids:
                await turns.next()
                try:
                    await self._runtime.run(partition, partial(_end, group_id))
                except KafkaError as error:
                    failed = error
        if failed is not None:
            raise failed

    # --- topics

    def on_topics_changed(self, names: Iterable[str] | None) -> None:
        """Topics came, changed or were deleted; None: perhaps all."""
        changed = None if names is None else frozenset(names)
        if changed is None:
            present = set(self._topics.names())
            are_new = not present <= self._known_topics
            self._known_topics = present
        else:
            present_names = self._topics.names()
            existing = {name for name in changed if name in present_names}
            are_new = not existing <= self._known_topics
            self._known_topics -= changed
            self._known_topics |= existing

        def notify(shard: HasConsumers) -> Result:
            shard.consumers.on_topics_changed(changed, are_new=are_new)
            return Result()

        self._runtime.run_everywhere(notify)

    # --- describe

    async def describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        """Authorized operations are left for the caller to fill in."""
        turns = self._gate.turns()
        groups = []
        for group_id in request.group_ids:
            await turns.next()
            groups.append(await self._describe(group_id))
        return ConsumerGroupDescribeResponse(groups=groups)

    async def _describe(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        try:
            partition = self._partition_of(group_id)
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            described: ConsumerGroupDescribeResponse.DescribedGroup = await self._runtime.run(
                partition, lambda shard, _now: Result(shard.consumers.describe(group_id))
            )
            return described
        except KafkaError as error:
            return ConsumerGroupDescribeResponse.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message or None
            )


def _end(group_id: str, shard: HasConsumers, now_ms: int) -> Result:
    return shard.consumers.end(group_id, now_ms)


def _check_not_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip(_BLANK):
        raise _invalid(f"{name} can't be empty.")


_BLANK = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes."""


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
