"""The context of `tests.coordinator.context` with consumer groups: topics that are a dictionary, and simulated members.

A Consumer sends full heartbeats to join, and then as the Java client only what changed.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gregor.broker.jobs.turns import LoopGate
from gregor.coordinator.group.consumer.config import (
    ConsumerGroupConfig,
    ConsumerGroups,
    ConsumerGroupSettings,
    DefaultConfigs,
    VisibleTopics,
)
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.coordinator import GroupCoordinator
from gregor.coordinator.ports import TopicInfo
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.coordinator.context import Call, Context

Partitions = dict[str, list[int]]
"""Partitions by topic name."""


class MemoryTopics:
    """Implements TopicView."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicInfo] = {}
        self._next_id = 0

    def names(self) -> Collection[str]:
        return self.topics.keys()

    def find(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((name for name, topic in self.topics.items() if topic.topic_id == topic_id), None)

    def set(self, name: str, partitions: int, racks: tuple[tuple[str, ...], ...] = ()) -> None:
        present = self.topics.get(name)
        if present is None:
            self._next_id += 1
        topic_id = self._next_id.to_bytes(16, "big") if present is None else present.topic_id
        self.topics[name] = TopicInfo(topic_id, partitions, racks)


class HeldGate(LoopGate):
    """A gate that does no work in turns while an event is set for it to wait for, and else all of it in one turn."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: 0.0)
        self.held: asyncio.Event | None = None

    async def run(self, steps: Any) -> Any:
        if self.held is not None:
            await self.held.wait()
        return await super().run(steps)


class ConsumerContext(Context):
    """See the module. Target assignments are computed at once unless an interval is given."""

    def __init__(
        self,
        topics: dict[str, int] | None = None,
        *,
        settings: ConsumerGroupSettings | None = None,
        assignment_interval_ms: int = 0,
        **options: Any,
    ) -> None:
        self.topics = MemoryTopics()
        for name, partitions in ({"t": 4} if topics is None else topics).items():
            self.topics.set(name, partitions)
        self.configs = DefaultConfigs(ConsumerGroupConfig(assignment_interval_ms=assignment_interval_ms))
        self.settings = settings or ConsumerGroupSettings()
        self.served = self.admitted = True
        self.gate = HeldGate()
        super().__init__(**options)

    def _make_gate(self) -> HeldGate:
        return self.gate

    def _make(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.config,
            self.log,
            self.log,
            self.now_ms,
            self.gate,
            partition_count=self.partition_count,
            new_uuid=self._new_uuid,
            consumer_groups=ConsumerGroups(
                self.topics, self.configs, self.settings, lambda: self.served, lambda: self.served and self.admitted
            ),
            history=self.history,
        )

    # --- topics

    def set_topic(self, name: str, partitions: int, racks: tuple[tuple[str, ...], ...] = ()) -> None:
        """Create a topic or change it."""
        self.topics.set(name, partitions, racks)
        self.notify(name)

    def delete_topic(self, name: str) -> None:
        del self.topics.topics[name]
        self.notify(name)

    def notify(self, *names: str) -> None:
        async def notify() -> None:
            self.coordinator.on_topics_changed(names)

        self.run(notify())

    def id_of(self, name: str) -> Uuid:
        return self.topics.topics[name].topic_id

    def named(self, topics: Iterable[Any]) -> Partitions:
        names = {topic.topic_id: name for name, topic in self.topics.topics.items()}
        return {names.get(topic.topic_id, "?"): sorted(topic.partitions) for topic in topics}

    # --- requests

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = "g",
        instance: str | None = None,
        rack: str | None = None,
        rebalance_ms: int = -1,
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        owned: Mapping[str, list[int]] | Mapping[Uuid, list[int]] | None = None,
        version: int = 1,
        client_id: str | None = "client",
        client_host: str = "/127.0.0.1",
        visible: VisibleTopics | None = None,
    ) -> Call[ConsumerGroupHeartbeatResponse]:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None
            if owned is None
            else [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=topic if isinstance(topic, bytes) else self.id_of(topic), partitions=partitions
                )
                for topic, partitions in owned.items()
            ],
        )
        return self.begin(
            lambda: self.coordinator.consumer_group_heartbeat(request, client_id, client_host, version, visible)
        )

    def beat_error(self, member_id: str, epoch: int, **options: Any) -> ErrorCode:
        return self.beat(member_id, epoch, **options).error

    def join_new(
        self, member_id: str, topics: Iterable[str] | None = ("t",), **options: Any
    ) -> ConsumerGroupHeartbeatResponse:
        options.setdefault("rebalance_ms", 60_000)
        response = self.beat(member_id, 0, topics=topics, owned={}, **options).response
        assert response.error_code == ErrorCode.NONE, response
        return response

    def consumer(self, member_id: str, topics: Iterable[str] | None = ("t",), **options: Any) -> "Consumer":
        """A member that joined."""
        consumer = Consumer(self, member_id, topics, **options)
        consumer.beat()
        return consumer

    # --- state

    def found(self, group: str = "g") -> ConsumerGroup:
        found = self.coordinator.shard(self.coordinator.partition_for(group)).consumers.find(group)
        assert found is not None
        return found

    def named_assignment(self, member_id: str, group: str = "g") -> Partitions:
        """The partitions that the coordinator has assigned to a member."""
        names = {topic.topic_id: name for name, topic in self.topics.topics.items()}
        assigned = self.found(group).members[member_id].assignment.assigned
        return {names[topic_id]: sorted(partitions) for topic_id, partitions in assigned.items()}

    def consumer_describe(self, group: str = "g") -> ConsumerGroupDescribeResponse.DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        return self.run(self.coordinator.consumer_group_describe(request)).groups[0]

    def settle_group(self, *consumers: "Consumer", rounds: int = 20) -> None:
        """Heartbeats of all until nothing changes."""
        for _ in range(rounds):
            if not any([consumer.beat() for consumer in consumers]):
                return
        raise AssertionError(f"not stable after {rounds} rounds: {self.consumer_describe()}")


class Consumer:
    """A member as the Java client behaves; it revokes at once what it must not own any more."""

    def __init__(
        self,
        context: ConsumerContext,
        member_id: str,
        topics: Iterable[str] | None = ("t",),
        *,
        rebalance_ms: int = 60_000,
        **options: Any,
    ) -> None:
        self.context = context
        self.member_id = member_id
        self.epoch = 0
        self.owned: Partitions = {}
        self.error = ErrorCode.NONE
        self._joining = {"topics": topics, "rebalance_ms": rebalance_ms, **options}
        self._identity = {key: value for key, value in options.items() if key in ("group", "instance", "visible")}
        self._report = False

    def beat(self) -> bool:
        """Send a heartbeat; return whether anything changed."""
        if self.epoch == 0:
            call = self.context.beat(self.member_id, 0, owned={}, **self._joining)
        elif self._report:
            call = self.context.beat(self.member_id, self.epoch, owned=self.owned, **self._identity)
        else:
            call = self.context.beat(self.member_id, self.epoch, **self._identity)
        response = call.response
        self.error = ErrorCode(response.error_code)
        if self.error:
            return False
        changed = self._report or response.member_epoch != self.epoch
        self._report = False
        self.epoch = response.member_epoch
        if response.assignment is not None:
            assigned = self.context.named(response.assignment.topic_partitions)
            if assigned != self.owned:
                changed = self._report = True
                self.owned = assigned
        return changed

    def leave(self, epoch: int = -1) -> ErrorCode:
        call = self.context.beat(self.member_id, epoch, **self._identity)
        return ErrorCode(call.response.error_code)


def plain(group: ConsumerGroup | None) -> dict[str, Any] | None:
    """The hard state of a group, to be compared."""
    if group is None:
        return None
    return {
        "epochs": (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms),
        "members": {
            member_id: (
                member.subscription._replace(classic=None),
                None if member.subscription.classic is None else member.subscription.to_record().encode(0),
                member.assignment,
            )
            for member_id, member in group.members.items()
        },
        "static": group.static_members,
        "target": group.target,
        "owners": group.owners,
        "resolved": group.resolved,
        "regexes": group.regex_counts,
        "topics": group.subscribed_topics,
        "state": group.state,
        "partition metadata": group.has_partition_metadata,
    }
