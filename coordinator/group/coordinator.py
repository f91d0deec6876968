"""The group coordinator of a broker: what its request handlers call.

Methods have messages of `protocol.messages` as arguments and results; errors are in the responses, where clients expect
them. Authorization, quotas, topic ids and the existence of topics are the caller's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gregor.coordinator.group.commits.repeated import CommitAgain, commit_again
from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.consumer.config import ConsumerGroups, VisibleTopics
from gregor.coordinator.group.consumer.requests import ConsumerRequests
from gregor.coordinator.group.joining import Joiner
from gregor.coordinator.group.offsets import Offsets, commit_response, transactional_commit_response
from gregor.coordinator.group.pieces import about, commit_in_pieces, fetch_pieces, for_one_group, is_one_piece
from gregor.coordinator.group.rebalance import refused_join
from gregor.coordinator.group.records import decode_record, encode_record, is_independent
from gregor.coordinator.group.shard import GroupShard
from gregor.coordinator.history.rebalance import RebalanceLog
from gregor.coordinator.partitioner import partition_of
from gregor.coordinator.ports import LogLoader, LogWriter
from gregor.coordinator.result import Producer, Result, answered, coordinator_error
from gregor.coordinator.runtime import CoordinatorRuntime, RecordFormat, RuntimeSettings
from gregor.protocol.deferred import Deferred, completed, transformed
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.turns import ITEMS_PER_STEP, Gate, Turns

if TYPE_CHECKING:
    import asyncio

OFFSETS_TOPIC = "__consumer_offsets"

# An operation of a shard cannot be interrupted; a request about more than this becomes several.
GROUPS_PER_DELETION = 32

NULL_PROTOCOL_FROM = 7
"""JoinGroup responses without a protocol have null from this version on, and an empty name in the versions before."""

LOADING_IS_ANSWERED_FROM = 2
"""Producers that send TxnOffsetCommit of an older version fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""

Verify = Callable[[int], Awaitable[object]]
"""Verifies that a partition of the internal topic belongs to the transaction; returns the guard of Producer, or raises
KafkaError."""


class GroupCoordinator:
    """Serves the groups of the partitions of `__consumer_offsets` that this broker leads. Lives on the event loop."""

    def __init__(
        self,
        config: GroupConfig,
        writer: LogWriter,
        loader: LogLoader,
        clock_ms: Callable[[], int],
        gate: Gate,
        *,
        partition_count: int = 50,
        new_uuid: Callable[[], str] | None = None,
        consumer_groups: ConsumerGroups | None = None,
        history: RebalanceLog | None = None,
    ) -> None:
        """`clock_ms` is the wall clock; `new_uuid` makes the second half of member ids. Requests about many groups or
        partitions proceed in turns of `gate`. `history` keeps the rebalances."""
        consumer_groups = consumer_groups or ConsumerGroups()
        self._config = config
        self._gate = gate
        self.partition_count = partition_count
        self._closed = False
        self._clock_ms = clock_ms
        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            lambda context: GroupShard(config, context, gate, consumer_groups, new_uuid, history),
            RecordFormat(encode_record, decode_record, is_independent),
            writer,
            loader,
            clock_ms,
            gate,
            RuntimeSettings(OFFSETS_TOPIC, config.commit_timeout_ms, config.load_buffer_bytes),
        )
        self._consumers = ConsumerRequests(consumer_groups, self._runtime, self._partition_of, clock_ms, gate)
        self.on_topics_changed = self._consumers.on_topics_changed
        self.consumer_group_describe = self._consumers.describe
        self.end_consumer_groups = self._consumers.end_groups

    # --- partitions

    def partition_for(self, group_id: str) -> int:
        """The partition that a group belongs to. `partition_count` must be that of the existing topic."""
        return partition_of(group_id, self.partition_count)

    def on_partition_count(self, count: int) -> None:
        """The topic has this many partitions."""
        self.partition_count = count

    def on_elected(self, partition: int, leader_epoch: int) -> asyncio.Task[None] | None:
        """This broker leads the partition now: its groups are loaded. Returns the load, which can be awaited."""
        return None if self._closed else self._runtime.elect(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This broker leads the partition no more; pending requests about its groups get NOT_COORDINATOR."""
        self._runtime.resign(partition, leader_epoch)

    def on_topics_deleted(self, topics: Iterable[str]) -> None:
        """Forget what groups committed for these topics."""
        gone = frozenset(topics)
        self._runtime.run_everywhere(lambda shard: shard.delete_offsets_of_topics(gone))

    def close(self) -> None:
        """Answer pending and later requests with an error on which clients find another coordinator."""
        self._closed = True
        self._runtime.close()

    def shard(self, partition: int) -> GroupShard:
        """The groups of a partition, to read from. Raises KafkaError while they are not loaded."""
        return self._runtime.shard(partition)

    def loaded_shards(self) -> Iterator[GroupShard]:
        """The shards that are loaded, to read from; others may be loaded or end between two of them."""
        for partition in self._runtime.partitions():
            try:
                yield self._runtime.shard(partition)
            except KafkaError:
                continue

    def _partition_of(self, group_id: str) -> int:
        self._check_open()
        return self.partition_for(group_id)

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # --- membership

    def join_group(
        self, request: JoinGroupRequest, client_id: str | None, client_host: str, version: int
    ) -> Deferred[JoinGroupResponse]:
        """The response may be as late as the end of a rebalance. `client_host` as Kafka writes it: "/127.0.0.1"."""

        def refuse(error: KafkaError) -> JoinGroupResponse:
            return refused_join(error.code, request.member_id)

        try:
            partition = self._partition_of(request.group_id)
            self._check_join(request)
            joiner = Joiner.of(request, client_id, client_host, version)
        except KafkaError as error:
            answer = completed(refuse(error))
        else:
            answer = answered(self._runtime.start(partition, lambda shard, now: shard.join(joiner, now)), refuse)
        return answer if version >= NULL_PROTOCOL_FROM else transformed(answer, _with_protocol_name)

    def _check_join(self, request: JoinGroupRequest) -> None:
        _check_group_id(request.group_id)
        shortest_ms, longest_ms = self._config.min_session_timeout_ms, self._config.max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def sync_group(self, request: SyncGroupRequest, version: int) -> Deferred[SyncGroupResponse]:
        """The response may be as late as the assignment of the group's leader."""
        try:
            partition = self._partition_of(request.group_id)
            _check_group_id(request.group_id)
            if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        except KafkaError as error:
            return completed(_refused_sync(error))
        return answered(self._runtime.start(partition, lambda shard, now: shard.sync(request, now)), _refused_sync)

    def heartbeat(self, request: HeartbeatRequest, version: int) -> HeartbeatResponse:
        """Never waits. While the group loads all is well: the session is counted from the end of the load."""
        try:
            partition = self._partition_of(request.group_id)
            _check_group_id(request.group_id)
            error = self._runtime.shard(partition).heartbeat(
                request.group_id,
                request.generation_id,
                request.member_id,
                request.group_instance_id,
                self._clock_ms(),
            )
        except KafkaError as refused:
            error = refused.code
            if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                error = ErrorCode.NONE
        return HeartbeatResponse(error_code=error)

    def heartbeat_renewal(self, request: HeartbeatRequest) -> Callable[[], bool] | None:
        """Return what restarts the session of a member that sends the same heartbeat again; it returns False, and does
        nothing, unless the answer would be the same. None in a group that is not stable."""
        try:
            shard = self._runtime.shard(self._partition_of(request.group_id))
        except KafkaError:
            return None
        return self._while_count_stays(shard.heartbeat_renewal(request))

    def consumer_heartbeat_renewal(
        self, request: ConsumerGroupHeartbeatRequest, client_id: str | None, client_host: str
    ) -> Callable[[], bool] | None:
        """As `heartbeat_renewal`, of a member of a consumer group."""
        return self._while_count_stays(self._consumers.renewal(request, client_id, client_host))

    def _while_count_stays(self, renew: Callable[[], bool] | None) -> Callable[[], bool] | None:
        """Return the renewal; it does nothing once the topic has another number of partitions, to others of which the
        group may belong."""
        count = self.partition_count
        return None if renew is None else lambda: self.partition_count == count and renew()

    async def leave_group(self, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
        """Before v3 a request is about one member, and the response has its error on top."""
        if version < 3:
            identity = LeaveGroupRequest.MemberIdentity(member_id=request.member_id)
            request = LeaveGroupRequest(group_id=request.group_id, members=[identity])
        try:
            partition = self._partition_of(request.group_id)
            _check_group_id(request.group_id)
            response: LeaveGroupResponse = await self._runtime.run(
                partition, lambda shard, now: shard.leave(request, now)
            )
        except KafkaError as error:
            return LeaveGroupResponse(error_code=error.code)
        if version < 3:
            return LeaveGroupResponse(error_code=response.members[0].error_code)
        return response

    def consumer_group_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str | None,
        client_host: str,
        version: int,
        visible: VisibleTopics | None = None,
    ) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
        """The usual heartbeat, which changes nothing, has its response at once. `visible` finds the topics that the
        client may describe; the regular expression of a member matches no others. Without it all count."""
        return self._consumers.heartbeat(request, client_id, client_host, version, visible)

    # --- offsets

    async def offset_commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        """The empty group id is allowed, for the sake of old clients. Topics must have names, also in v10.

        More than pieces.PARTITIONS_PER_COMMIT partitions are written in pieces, each with an answer of its own."""
        if is_one_piece(request):
            return await self._commit(request, version)
        topics = await commit_in_pieces(request, partial(self._commit, version=version), self._gate.turns())
        return OffsetCommitResponse(topics=topics)

    async def _commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        return await self._runtime.outcome_of(self.begin_offset_commit(request, version))

    def begin_offset_commit(self, request: OffsetCommitRequest, version: int) -> Deferred[OffsetCommitResponse]:
        """As `offset_commit`, for a request of one piece (pieces.is_one_piece) and a caller that does not wait."""
        try:
            partition = self._partition_of(request.group_id)
        except KafkaError as error:
            return completed(commit_response(request, error.code))
        return answered(
            self._runtime.start(partition, lambda shard, now: shard.commit_offsets(request, version, now)),
            lambda error: commit_response(request, error.code),
        )

    def repeated_offset_commit(self, request: OffsetCommitRequest, version: int) -> CommitAgain | None:
        """See commit_again, for a request that has succeeded."""
        n, at = self.partition_count, self.partition_for(request.group_id)
        return commit_again(request, version, partial(self._runtime.repeat, at), lambda: self.partition_count == n)

    async def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, version: int, verify: Verify | None = None
    ) -> TxnOffsetCommitResponse:
        """As `offset_commit`; the offsets count once the marker of the transaction commits them (KIP-98).

        `verify` is called before the append, with the partition of the group; without it the log does not require a
        verification."""
        commit = partial(self._commit_in_transaction, version=version, verify=verify)
        if is_one_piece(request):
            return await commit(request)
        topics = await commit_in_pieces(request, commit, self._gate.turns())
        return TxnOffsetCommitResponse(topics=topics)

    async def _commit_in_transaction(
        self, request: TxnOffsetCommitRequest, version: int, verify: Verify | None
    ) -> TxnOffsetCommitResponse:
        try:
            partition = self._partition_of(request.group_id)
            _check_group_id(request.group_id)
            producer = Producer(request.producer_id, request.producer_epoch)
            if verify is not None:
                producer = producer._replace(verified=True, guard=await _verified(verify, partition))
            response: TxnOffsetCommitResponse = await self._runtime.run(
                partition, lambda shard, now: shard.commit_transactional_offsets(request, version, producer, now)
            )
        except KafkaError as error:
            code = error.code
            if version < LOADING_IS_ANSWERED_FROM and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return transactional_commit_response(request, code)
        return response

    def end_transaction(self, partition: int, marker: EndTransaction) -> Deferred[bool]:
        """Write the marker of a transaction; its offsets then count, or never. Completes when the marker is committed,
        and fails with KafkaError."""
        return self._runtime.start(partition, lambda _shard, _now: Result(True, marker=marker))

    async def offset_fetch(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        """Requests before v8 are about one group. Topics must have names, also in v10.

        Where the request is about all topics, the response has names without ids: the caller adds them for v10.
        """
        turns = self._gate.turns()
        if version >= 8:
            groups = []
            for wanted in request.groups:
                await turns.next()
                groups.append(await self._fetch_group(wanted, request.require_stable, turns))
            return OffsetFetchResponse(groups=groups)
        topics = None
        if request.topics is not None:
            topics = []
            for topic in request.topics:
                await turns.next()
                indexes = topic.partition_indexes
                topics.append(OffsetFetchRequest.OffsetFetchRequestTopics(name=topic.name, partition_indexes=indexes))
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
        fetched = await self._fetch_group(wanted, request.require_stable, turns)
        return await for_one_group(wanted, fetched, version, turns)

    async def _fetch_group(
        self, wanted: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, turns: Turns
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        """In pieces, if it is about many partitions; an error of any piece is that of the whole."""
        group_id = wanted.group_id
        fetched = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group_id)
        try:
            if wanted.topics is None:
                topics = await self._read_offsets(group_id, lambda offsets: offsets.committed(group_id))
                wanted = about(wanted, topics)
            for piece in fetch_pieces(wanted):
                if fetched.topics:
                    await turns.next()
                part = await self._read_offsets(group_id, partial(_fetch_piece, piece, require_stable))
                if part.error_code:
                    raise KafkaError(ErrorCode(part.error_code))
                if fetched.topics and part.topics and fetched.topics[-1].name == part.topics[0].name:
                    fetched.topics[-1].partitions.extend(part.topics.pop(0).partitions)
                fetched.topics += part.topics
        except KafkaError as error:
            return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)
        return fetched

    async def _read_offsets(self, group_id: str, read: Callable[[Offsets], Any]) -> Any:
        """Raises KafkaError."""
        partition = self._partition_of(group_id)
        try:
            self._runtime.check_current()
            return await self._runtime.run(partition, lambda shard, _now: Result(read(shard.offsets)))
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                # Consumers before 3.9 do not expect this one here and would give up.
                raise KafkaError(ErrorCode.NOT_COORDINATOR) from None
            raise

    # --- administration

    async def describe_groups(self, request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        """Authorized operations are left for the caller to fill in."""
        turns = self._gate.turns()
        groups = []
        for group_id in request.groups:
            await turns.next()
            groups.append(await self._describe(group_id, version))
        return DescribeGroupsResponse(groups=groups)

    async def _describe(self, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
        try:
            response: DescribeGroupsResponse.DescribedGroup = await self._runtime.run(
                self._partition_of(group_id), lambda shard, _now: Result(shard.queries.describe(group_id, version))
            )
            return response
        except KafkaError as error:
            return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=error.code)

    async def list_groups(self, request: ListGroupsRequest, version: int) -> ListGroupsResponse:
        """The groups of all partitions of this broker. Filters that a version does not have are empty."""
        turns = self._gate.turns()
        groups: list[ListGroupsResponse.ListedGroup] = []
        try:
            self._check_open()
            for partition in self._runtime.loaded():
                groups += await self._list(partition, request, turns)
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code)
        return ListGroupsResponse(groups=groups)

    async def _list(
        self, partition: int, request: ListGroupsRequest, turns: Turns
    ) -> list[ListGroupsResponse.ListedGroup]:
        """The groups of one partition; none if this broker does not lead it any more."""
        groups: list[ListGroupsResponse.ListedGroup] = []
        try:
            group_ids = self._runtime.shard(partition).queries.group_ids()
            for first in range(0, len(group_ids), ITEMS_PER_STEP):
                await turns.next()
                some = group_ids[first : first + ITEMS_PER_STEP]
                queries = self._runtime.shard(partition).queries
                groups += queries.list(some, request.states_filter, request.types_filter)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            return []
        return groups

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Topics and partitions must exist."""
        try:
            partition = self._partition_of(request.group_id)
            _check_group_id(request.group_id)
            response: OffsetDeleteResponse = await self._runtime.run(
                partition, lambda shard, _now: shard.offsets.delete(request)
            )
            return response
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code)

    async def delete_groups(self, request: DeleteGroupsRequest, version: int) -> DeleteGroupsResponse:
        """Groups with members stay. Each group is answered for once, however often it is named."""
        turns = self._gate.turns()
        results = []
        by_partition: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(request.groups_names):
            await turns.next()
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        for partition, group_ids in by_partition.items():
            for first in range(0, len(group_ids), GROUPS_PER_DELETION):
                await turns.next()
                some = group_ids[first : first + GROUPS_PER_DELETION]
                try:
                    self._check_open()
                    results += await self._runtime.run(partition, partial(_delete, some))
                except KafkaError as error:
                    results += [
                        DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error.code)
                        for group_id in some
                    ]
        return DeleteGroupsResponse(results=results)


def _fetch_piece(
    wanted: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, offsets: Offsets
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    return offsets.fetch(wanted, require_stable)


def _with_protocol_name(response: JoinGroupResponse) -> JoinGroupResponse:
    return response if response.protocol_name is not None else response.replaced(protocol_name="")


def _refused_sync(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)


async def _verified(verify: Verify, partition: int) -> object:
    """Raises KafkaError, with the code that a client of a coordinator expects."""
    try:
        return await verify(partition)
    except KafkaError as error:
        raise KafkaError(coordinator_error(error.code)) from error


def _delete(group_ids: list[str], shard: GroupShard, _now_ms: int) -> Result:
    return shard.delete_groups(group_ids)


def _check_group_id(group_id: str) -> None:
    """Members need a name for their group; offsets, by tradition, do not."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
