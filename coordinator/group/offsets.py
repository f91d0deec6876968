"""OffsetCommit (v1 to v10), TxnOffsetCommit (v0 to v6), OffsetFetch (v1 to v10) and OffsetDelete, and which offsets are
no longer needed.

Commits of v1 may bring the time from which they are kept, those of v2 to v4 a retention time of their own; from v5 on
the broker's setting counts (KIP-211). From v10 on, in transactions from v6 on, topics come by id: the caller fills in
their names before, and responses carry both.

The offsets of a transaction are pending until its marker; then each counts unless a later record has replaced it. A
tombstone removes the pending offset too, so the end of the transaction does not bring it back. Behaviour: Kafka's
OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.consumer.queries import commit_error, fetch_error
from gregor.coordinator.group.group import CommittedOffset, Group
from gregor.coordinator.group.rebalance import Rebalances
from gregor.coordinator.group.records import NO_TIMESTAMP, java_length
from gregor.coordinator.group.soft_state import SoftState
from gregor.coordinator.group.states import ANSWERS, Answer, GroupState, Request
from gregor.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from gregor.coordinator.ports import TopicView
from gregor.coordinator.result import Producer, Record, Result
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.messages import (
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitValue,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from gregor.protocol.records.batch import INT64_MAX
from gregor.protocol.topic_partition import TopicPartitionKey

_COMMIT = ANSWERS[Request.COMMIT]
_COMMIT_SIMPLE = ANSWERS[Request.COMMIT_SIMPLE]
_COMMIT_IN_TRANSACTION = ANSWERS[Request.COMMIT_IN_TRANSACTION]
_COMMIT_SIMPLE_IN_TRANSACTION = ANSWERS[Request.COMMIT_SIMPLE_IN_TRANSACTION]

TRANSACTIONAL_ERRORS_FROM = 6
"""From this version of TxnOffsetCommit on producers know GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319)."""
NO_OFFSET = -1
NO_LEADER_EPOCH = -1

_FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopics
_FetchedPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
_TxnTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_TxnPartition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


class Offsets:
    """The committed offsets of the groups of one shard. Methods read hard state and return records that change it."""

    def __init__(
        self,
        config: GroupConfig,
        groups: Mapping[str, Group],
        soft: SoftState,
        rebalances: Rebalances,
        topics: TopicView,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._soft = soft
        self._rebalances = rebalances

    # --- commit

    def commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> Result:
        """Answers with an OffsetCommitResponse."""
        error = self._commit_error(request, version)
        if error:
            return Result(commit_response(request, error))
        self._watch_session(request)
        # A retention time beyond the range of the field lasts as long as the field can express.
        expire_ms = (
            NO_TIMESTAMP if request.retention_time_ms < 0 else min(now_ms + request.retention_time_ms, INT64_MAX)
        )
        records: list[Record] = []
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = ErrorCode.NONE
                commit_ms = now_ms if partition.commit_timestamp < 0 else partition.commit_timestamp
                value = self._value(partition, commit_ms, expire_ms)
                if value is None:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    records.append(Record(_key(request.group_id, topic.name, index), value))
                partitions.append(
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=index, error_code=code)
                )
            topics.append(
                OffsetCommitResponse.OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=partitions
                )
            )
        return Result(OffsetCommitResponse(topics=topics), records)

    def accept_again(self, request: OffsetCommitRequest, version: int) -> bool:
        """Do for a commit that was served before what `commit` does besides its records; return whether the group
        accepts it. If not, nothing has happened."""
        if self._commit_error(request, version):
            return False
        self._watch_session(request)
        return True

    def _watch_session(self, request: OffsetCommitRequest) -> None:
        """Restart the session of a member: one that is busy with a long poll keeps it alive by what it commits."""
        membership = self._soft.memberships.get(request.group_id)
        member = membership.members.get(request.member_id) if membership is not None else None
        if membership is not None and member is not None:
            self._rebalances.watch_session(membership, member)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, version: int, producer: Producer, now_ms: int
    ) -> Result:
        """Answers with a TxnOffsetCommitResponse. The commit does not extend a session."""
        error = self._transactional_commit_error(request, version)
        if error:
            return Result(transactional_commit_response(request, error))
        records: list[Record] = []
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = ErrorCode.NONE
                value = self._value(partition, now_ms, NO_TIMESTAMP)
                if value is None:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    records.append(Record(_key(request.group_id, topic.name, index), value))
                partitions.append(_TxnPartition(partition_index=index, error_code=code))
            topics.append(_TxnTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return Result(TxnOffsetCommitResponse(topics=topics), records, producer=producer)

    def _value(
        self,
        partition: OffsetCommitRequest.OffsetCommitRequestPartition
        | TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
        commit_ms: int,
        expire_ms: int,
    ) -> OffsetCommitValue | None:
        """Return the value of the record for an offset; None if its metadata is too large."""
        metadata = partition.committed_metadata or ""
        if java_length(metadata) > self._config.metadata_max_bytes:
            return None
        return OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=commit_ms,
            expire_timestamp=expire_ms,
        )

    def _transactional_commit_error(self, request: TxnOffsetCommitRequest, version: int) -> ErrorCode:
        group, generation = self._groups.get(request.group_id), request.generation_id
        if group is not None and group.consumer is not None:
            error = commit_error(group.consumer, self._topics, request, generation, None)
            # Older producers do not know the error of the newer protocol.
            is_old = version < TRANSACTIONAL_ERRORS_FROM and error is ErrorCode.STALE_MEMBER_EPOCH
            return ErrorCode.ILLEGAL_GENERATION if is_old else error
        error = self._sender_error(request, generation, _COMMIT_IN_TRANSACTION, _COMMIT_SIMPLE_IN_TRANSACTION)
        if error and version >= TRANSACTIONAL_ERRORS_FROM and self._soft.state(request.group_id) is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return error

    def _commit_error(self, request: OffsetCommitRequest, version: int) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if group is not None and group.consumer is not None:
            epoch = request.generation_id_or_member_epoch
            return commit_error(group.consumer, self._topics, request, epoch, version)
        error = self._sender_error(request, request.generation_id_or_member_epoch, _COMMIT, _COMMIT_SIMPLE)
        if error and version >= 9 and self._soft.state(request.group_id) is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return error

    def _sender_error(
        self,
        request: OffsetCommitRequest | TxnOffsetCommitRequest,
        generation: int,
        of_member: Mapping[GroupState, Answer],
        simple: Mapping[GroupState, Answer],
    ) -> ErrorCode:
        """Return why the group does not accept a commit of this sender; NONE if it does."""
        state = self._soft.state(request.group_id)
        if generation < 0:
            nameless = request.member_id == "" and request.group_instance_id is None
            if nameless or state is GroupState.EMPTY or state is GroupState.DEAD:
                answer = simple[state]
                return answer if isinstance(answer, ErrorCode) else ErrorCode.NONE
        membership = self._soft.memberships.get(request.group_id)
        if membership is not None:
            error = membership.member_error(request.member_id, request.group_instance_id)
            if error:
                return error
            if generation != membership.generation:
                return ErrorCode.ILLEGAL_GENERATION
        answer = of_member[state]
        return answer if isinstance(answer, ErrorCode) else ErrorCode.NONE

    # --- fetch

    def fetch(self, wanted: _FetchGroup, require_stable: bool) -> _FetchedGroup:
        """The offsets of one group; without topics those of all partitions that have one.

        A partition without an offset has -1, also if there is no such group. With `require_stable`, a partition whose
        offset an open transaction is about to move is answered with a retriable error (KIP-447).
        """
        group = self._groups.get(wanted.group_id)
        if group is not None and group.consumer is not None:
            error = fetch_error(group.consumer, wanted.member_id, wanted.member_epoch)
            if error:
                return _FetchedGroup(group_id=wanted.group_id, error_code=error)
        committed = group.offsets if group is not None else {}
        unstable = group.pending if group is not None and require_stable else {}
        if wanted.topics is None:
            topics = [_fetched(name, ZERO_UUID, offsets, offsets, unstable) for name, offsets in committed.items()]
        else:
            topics = [
                _fetched(topic.name, topic.topic_id, topic.partition_indexes, committed.get(topic.name, {}), unstable)
                for topic in wanted.topics
            ]
        return _FetchedGroup(group_id=wanted.group_id, topics=topics)

    def committed(self, group_id: str) -> list[OffsetFetchRequest.OffsetFetchRequestTopics]:
        """Return the topics and partitions of which a group has offsets."""
        group = self._groups.get(group_id)
        return [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=list(offsets))
            for name, offsets in (group.offsets if group is not None else {}).items()
        ]

    # --- delete

    def delete(self, request: OffsetDeleteRequest) -> Result:
        """Answers with an OffsetDeleteResponse. Offsets of topics that members of a consumer group subscribe to stay,
        and all offsets of other groups with members (KIP-496)."""
        answer = ANSWERS[Request.DELETE_OFFSETS][self._soft.state(request.group_id)]
        if isinstance(answer, ErrorCode):
            return Result(OffsetDeleteResponse(error_code=answer))
        membership = self._soft.memberships.get(request.group_id)
        if membership is not None and membership.members and membership.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return Result(OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
        group = self._groups.get(request.group_id) or Group(request.group_id)
        kept = self._kept_topics(group)
        records: dict[TopicPartitionKey, Record] = {}
        topics = []
        for topic in request.topics:
            name = topic.name
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if kept is None or name in kept else ErrorCode.NONE
            committed = group.offsets.get(name, {})
            indexes = [partition.partition_index for partition in topic.partitions]
            if not error:
                for index in indexes:
                    if index in committed or (name, index) in group.pending:
                        records[name, index] = _tombstone(request.group_id, name, index)
            topics.append(
                OffsetDeleteResponse.OffsetDeleteResponseTopic(
                    name=name,
                    partitions=[
                        OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                        for index in indexes
                    ],
                )
            )
        return Result(OffsetDeleteResponse(topics=topics), list(records.values()))

    # --- removal

    def tombstones(self, group: Group) -> list[Record]:
        """Records that remove all offsets of a group, those of open transactions too."""
        partitions = {(name, index) for name, offsets in group.offsets.items() for index in offsets}
        partitions.update(group.pending)
        return [_tombstone(group.group_id, name, index) for name, index in sorted(partitions)]

    def of_topics(self, group: Group, topics: Iterable[str]) -> list[Record]:
        """Records that remove a group's offsets of topics that no longer exist."""
        gone = frozenset(topics)
        partitions = {(name, index) for name in gone for index in group.offsets.get(name, ())}
        partitions.update(partition for partition in group.pending if partition[0] in gone)
        return [_tombstone(group.group_id, name, index) for name, index in sorted(partitions)]

    def expired(self, group: Group, now_ms: int) -> tuple[list[Record], bool]:
        """Return records that remove expired offsets, and whether none is left then (KIP-211).

        The time counts from when the group became empty; for simple groups, and for topics that a running consumer
        group no longer subscribes to, from the commit. A group that is neither empty nor known to be without a topic
        keeps it.
        """
        kept = self._kept_topics(group)
        if kept is None:
            return [], not (group.offsets or group.pending)
        since_ms = self._empty_since_ms(group)
        records = []
        pending = group.pending
        left = bool(pending)
        for name, offsets in group.offsets.items():
            for index, committed in offsets.items():
                gone = name not in kept and (name, index) not in pending and self._is_past(committed, since_ms, now_ms)
                if gone:
                    records.append(_tombstone(group.group_id, name, index))
                else:
                    left = True
        return records, not left

    def _is_past(self, committed: CommittedOffset, since_ms: int | None, now_ms: int) -> bool:
        if committed.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp_ms
        base_ms = committed.commit_timestamp_ms if since_ms is None else since_ms
        return now_ms - base_ms >= self._config.retention_ms

    def _empty_since_ms(self, group: Group) -> int | None:
        """When the last member left; None where that is not known or does not count."""
        metadata = group.metadata
        if metadata is None or metadata.members or not metadata.protocol_type:
            return None
        since_ms = metadata.current_state_timestamp
        return None if since_ms == NO_TIMESTAMP else since_ms

    def _kept_topics(self, group: Group) -> frozenset[str] | None:
        """Topics whose offsets stay because members subscribe to them; None: all."""
        if group.consumer is not None:
            return frozenset(group.consumer.subscribed_topics)
        membership = self._soft.memberships.get(group.group_id)
        if membership is None or membership.state is GroupState.EMPTY:
            return frozenset()
        stable = membership.state is GroupState.STABLE
        if not stable or membership.protocol is None or membership.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        return subscribed_topics(member.protocols[membership.protocol] for member in membership.members.values())


def commit_response(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same answer for all partitions."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def transactional_commit_response(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The same answer for all partitions."""
    return TxnOffsetCommitResponse(
        topics=[
            _TxnTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _TxnPartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _key(group_id: str, topic: str, partition: int) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition)


def _tombstone(group_id: str, topic: str, partition: int) -> Record:
    return Record(_key(group_id, topic, partition), None)


def _fetched(
    name: str,
    topic_id: Uuid,
    partitions: Iterable[int],
    committed: Mapping[int, CommittedOffset],
    unstable: Container[TopicPartitionKey],
) -> _FetchedTopic:
    answers = []
    for index in partitions:
        position = committed.get(index)
        if (name, index) in unstable:
            answer = _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        elif position is None:
            answer = _no_offset(index, ErrorCode.NONE)
        else:
            answer = _FetchedPartition(
                partition_index=index,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                metadata=position.metadata,
            )
        answers.append(answer)
    return _FetchedTopic(name=name, topic_id=topic_id, partitions=answers)


def _no_offset(partition: int, error: ErrorCode) -> _FetchedPartition:
    return _FetchedPartition(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=error,
    )
