"""A group coordinator in a CoordinatorContext. Requests that wait give a Call whose response comes later."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from gregor.broker.jobs.turns import LoopGate
from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.consumer.config import ConsumerGroups
from gregor.coordinator.group.coordinator import GroupCoordinator, Verify
from gregor.coordinator.group.group import Group
from gregor.coordinator.group.records import decode_record, is_independent
from gregor.coordinator.group.shard import GroupShard
from gregor.coordinator.group.states import GroupState
from gregor.coordinator.history.rebalance import Rebalance
from gregor.coordinator.history.records import encode
from gregor.coordinator.history.texts import line
from gregor.coordinator.replaying import replay
from gregor.coordinator.timers import LoopTimers
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.turns import run_all
from tests.coordinator.history.facts import values_of
from tests.coordinator.machinery import Call, CoordinatorContext


class KeptRebalances:
    """Implements RebalanceLog in memory."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.ended: list[Rebalance] = []
        self.forgotten: list[tuple[str, int]] = []

    def record(self, rebalance: Rebalance) -> None:
        self.ended.append(rebalance)

    def forget(self, group_id: str, epoch: int) -> None:
        self.forgotten.append((group_id, epoch))


class Context(CoordinatorContext[GroupCoordinator]):
    """See the module. Messages have the newest version unless another one is given."""

    def __init__(self, partition_count: int = 1, load: bool = True, **config: int) -> None:
        self.config = GroupConfig(**config)
        self._uuids = 0
        self.loop_gate = self._make_gate()
        self.history = KeptRebalances(self.now_ms)
        super().__init__(partition_count, load=load)

    def _make_gate(self) -> LoopGate:
        return LoopGate()

    def _make(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.config,
            self.log,
            self.log,
            self.now_ms,
            self.loop_gate,
            partition_count=self.partition_count,
            new_uuid=self._new_uuid,
            history=self.history,
        )

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        # In whatever way groups rebalance in a test, their history can be written.
        for value in values_of(self.history.ended):
            encode("g", value)
            assert line("g", value)

    def _new_uuid(self) -> str:
        self._uuids += 1
        return f"u{self._uuids}"

    # --- state

    @property
    def shard(self) -> GroupShard:
        """The shard of the first, mostly the only partition."""
        return self.coordinator.shard(0)

    def timers(self) -> set[Hashable]:
        """The keys of that shard's timers."""
        timers = self.shard.soft.timers
        assert isinstance(timers, LoopTimers)
        return timers.keys()

    def state(self, group: str = "g") -> GroupState:
        return self.coordinator.shard(self.coordinator.partition_for(group)).soft.state(group)

    def hard_state(self) -> dict[str, tuple[Any, Any, Any]]:
        """Hard state of that shard."""
        return _plain(self.shard.groups)

    def replayed_state(self) -> dict[str, tuple[Any, Any, Any]]:
        """The same as another coordinator would build it from the log."""
        shard = GroupShard(self.config, _NoContext(), LoopGate(), ConsumerGroups())
        data = b"".join(self.log.batches.get(0, []))
        run_all(replay(shard, decode_record, is_independent, data, 0, "replayed"))
        return _plain(shard.groups)

    # --- requests

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"sub"),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client_id: str | None = "client",
        reason: str | None = None,
    ) -> Call[JoinGroupResponse]:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
            ],
            reason=reason,
        )
        return self.begin(lambda: self.coordinator.join_group(request, client_id, "/127.0.0.1", version))

    def new_member(self, **options: Any) -> tuple[str, Call[JoinGroupResponse]]:
        """A dynamic member in the two steps of v4 and later; the second is left waiting."""
        told = self.join(**options)
        assert told.error is ErrorCode.MEMBER_ID_REQUIRED, told.response
        member_id = told.response.member_id
        return member_id, self.join(member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int = 5,
    ) -> Call[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=who, assignment=what)
                for who, what in (assignments or {}).items()
            ],
        )
        return self.begin(lambda: self.coordinator.sync_group(request, version))

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return ErrorCode(self.coordinator.heartbeat(request, 4).error_code)

    def leave(
        self, *members: str | tuple[str, str | None], group: str = "g", version: int = 5
    ) -> Call[LeaveGroupResponse]:
        identities = [
            LeaveGroupRequest.MemberIdentity(member_id=member)
            if isinstance(member, str)
            else LeaveGroupRequest.MemberIdentity(member_id=member[0], group_instance_id=member[1])
            for member in members
        ]
        request = LeaveGroupRequest(group_id=group, members=identities)
        if version < 3:
            request = LeaveGroupRequest(group_id=group, member_id=identities[0].member_id)
        return self.call(self.coordinator.leave_group(request, version))

    def commit_offset(
        self,
        offset: int = 5,
        *,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 9,
    ) -> Call[OffsetCommitResponse]:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=3,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        return self.call(self.coordinator.offset_commit(request, version))

    def commit_error(self, **options: Any) -> ErrorCode:
        return ErrorCode(self.commit_offset(**options).response.topics[0].partitions[0].error_code)

    def commit_in_transaction(
        self,
        offset: int = 5,
        *,
        producer_id: int = 7,
        producer_epoch: int = 0,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        version: int = 5,
        verify: Verify | None = None,
    ) -> Call[TxnOffsetCommitResponse]:
        committed = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )
        return self.call(self.coordinator.commit_transactional_offsets(request, version, verify))

    def transactional_error(self, offset: int = 5, **options: Any) -> ErrorCode:
        call = self.commit_in_transaction(offset, **options)
        return ErrorCode(call.response.topics[0].partitions[0].error_code)

    def end_transaction(
        self, *, commit: bool, producer_id: int = 7, producer_epoch: int = 0, partition: int = 0
    ) -> Deferred[bool]:
        """Send the marker of a transaction."""
        marker = EndTransaction(producer_id, producer_epoch, 0, commit, 2)

        async def end() -> Deferred[bool]:
            return self.coordinator.end_transaction(partition, marker)

        return self.run(end())

    def pending(self) -> dict[tuple[str, str, int], dict[int, int]]:
        """The pending offsets of that shard: by group, topic and partition, then by producer id."""
        return {
            (group_id, *partition): {producer_id: found.offset for producer_id, found in by_producer.items()}
            for group_id, group in self.shard.groups.items()
            for partition, by_producer in group.pending.items()
        }

    def fetch_offset(self, topic: str = "t", partition: int = 0, *, group: str = "g", stable: bool = False) -> int:
        """The committed offset of one partition, or minus its error."""
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
        )
        request = OffsetFetchRequest(groups=[wanted], require_stable=stable)
        answer = self.run(self.coordinator.offset_fetch(request, 9)).groups[0]
        if answer.error_code:
            return -1000 - answer.error_code
        found = answer.topics[0].partitions[0]
        return -1000 - found.error_code if found.error_code else found.committed_offset

    def fetch_all_offsets(self, *, group: str = "g", stable: bool = False) -> dict[tuple[str, int], int]:
        """All committed offsets of a group, or minus their errors."""
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(groups=[wanted], require_stable=stable)
        return {
            (topic.name, found.partition_index): -1000 - found.error_code
            if found.error_code
            else found.committed_offset
            for topic in self.run(self.coordinator.offset_fetch(request, 9)).groups[0].topics
            for found in topic.partitions
        }

    def describe(self, group: str = "g", version: int = 6) -> DescribeGroupsResponse.DescribedGroup:
        request = DescribeGroupsRequest(groups=[group])
        return self.run(self.coordinator.describe_groups(request, version)).groups[0]

    # --- whole scenes

    def stable_group(self, size: int = 1, *, group: str = "g", **options: Any) -> list[str]:
        """A group of dynamic members in generation 1, the first one leading; their assignments are their ids."""
        joins = [self.new_member(group=group, **options) for _ in range(size)]
        self.sleep(self.config.initial_rebalance_delay_ms * (size + 1))
        ids = [member_id for member_id, _ in joins]
        assert [join.error for _, join in joins] == [ErrorCode.NONE] * size
        assert joins[0][1].response.leader == ids[0]
        self.sync_all(ids, 1, group=group)
        return ids

    def stable_group_of(self, offers: Sequence[Sequence[tuple[str, bytes]]]) -> list[str]:
        """As `stable_group`, each member with protocols of its own."""
        joins = [self.new_member(protocols=offer) for offer in offers]
        self.sleep(self.config.initial_rebalance_delay_ms * (len(offers) + 1))
        ids = [member_id for member_id, _ in joins]
        self.sync_all(ids, 1, protocol=joins[0][1].response.protocol_name)
        return ids

    def sync_all(
        self, ids: Sequence[str], generation: int, *, group: str = "g", protocol: str | None = "range"
    ) -> None:
        """Send SyncGroup for all members; the first of `ids` is the leader and sends the assignments."""
        syncs = [self.sync(who, generation, group=group, protocol_name=protocol) for who in ids[1:]]
        given = {who: who.encode() for who in ids}
        syncs.insert(0, self.sync(ids[0], generation, given, group=group, protocol_name=protocol))
        for member_id, sync in zip(ids, syncs, strict=True):
            assert sync.response.assignment == member_id.encode()
        assert self.state(group) is GroupState.STABLE

    def static_group(self, instances: Sequence[str], *, group: str = "g", **options: Any) -> list[str]:
        """A group of static members in generation 1."""
        joins = [self.join(group=group, instance=instance, **options) for instance in instances]
        self.sleep(self.config.initial_rebalance_delay_ms * (len(instances) + 1))
        ids = [join.response.member_id for join in joins]
        self.sync_all(ids, 1, group=group)
        return ids


class _NoTimers:
    def schedule(self, key: object, delay_ms: int, operation: object) -> None: ...

    def restart(self, key: object, delay_ms: int) -> bool:
        return False

    def cancel(self, key: object) -> None: ...


class _NoContext:
    """The part of the runtime that a shard needs which only replays."""

    timers = _NoTimers()
    leader_epoch = 0

    def submit(self, operation: object) -> None: ...

    def outcome_of(self, awaitable: object) -> Any:
        raise NotImplementedError


def _plain(groups: dict[str, Group]) -> dict[str, tuple[Any, Any, Any]]:
    return {
        group_id: (
            None if group.metadata is None else group.metadata.encode(3),
            {
                (topic, partition): committed
                for topic, offsets in group.offsets.items()
                for partition, committed in offsets.items()
            },
            {partition: dict(by_producer) for partition, by_producer in group.pending.items()},
        )
        for group_id, group in groups.items()
    }
