"""A group: its state in the log, and its live membership.

`Group` is hard state: the last records of the log, nothing else; only `GroupShard.replay` changes it. `Membership` is
soft state: it begins as the state in the log, runs ahead of that during a rebalance, and adopts each generation that is
replayed. A coordinator that loses it loses a rebalance, no more: members join again after their next request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.member import Member
from gregor.coordinator.group.states import PREDECESSORS, GroupState
from gregor.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import GroupMetadataValue
from gregor.protocol.topic_partition import TopicPartitionKey


class CommittedOffset(NamedTuple):
    """The position of a group in one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """-1: by the retention setting. Commits of v2 to v4 may bring their own retention."""
    record_offset: int
    """Where in the log the commit lies: between a plain and a transactional commit the later one counts."""


class Group:
    """Hard state of one group. A group exists while it has metadata or offsets, also pending ones.

    `metadata` is None for a simple group: one that committed offsets and never had members. `pending` has the offsets
    of open transactions, by partition and producer id; there is no partition without one. `consumer` is set for a group
    of the consumer protocol, which has no `metadata`.
    """

    __slots__ = ("consumer", "group_id", "metadata", "offsets", "pending")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.metadata: GroupMetadataValue | None = None
        self.consumer: ConsumerGroup | None = None
        self.offsets: dict[str, dict[int, CommittedOffset]] = {}
        self.pending: dict[TopicPartitionKey, dict[int, CommittedOffset]] = {}

    def become_consumer(self, consumer: ConsumerGroup) -> bool:
        """Become a group of the consumer protocol; return whether it was a classic one."""
        was_classic = self.metadata is not None
        self.metadata, self.consumer = None, consumer
        return was_classic

    def end_consumer(self) -> None:
        """End to be a group of the consumer protocol; its offsets remain."""
        self.consumer = None

    def replace_metadata(self, metadata: GroupMetadataValue | None) -> GroupMetadataValue | None:
        """Become a classic group with this metadata, or one without; return those before."""
        before, self.metadata = self.metadata, metadata
        self.consumer = None
        return before

    @property
    def protocol_type(self) -> str | None:
        """None for a simple group and for one whose first generation was never written."""
        if self.consumer is not None:
            return CONSUMER_PROTOCOL_TYPE
        return (self.metadata.protocol_type or None) if self.metadata is not None else None


class Membership:
    """The live members of one group, and where it stands in a rebalance.

    Invariants: `parked_joins` counts the members with a parked join; `support` counts per protocol the members that
    speak it, and at least one protocol is spoken by all; `static_members` maps instance ids to the ids in `members`;
    there is a leader exactly while there are members, and it is one of them.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        # A rebalance that began with no members: it waits for more of them, even if all known ones have joined.
        self.forming = False
        self.newcomers = False
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        # Ids handed out with MEMBER_ID_REQUIRED and not yet used: a rebalance waits for them.
        self.pending: set[str] = set()
        # Members that have not yet fetched their assignment of the last generation.
        self.unsynced: set[str] = set()
        self.parked_joins = 0
        self.support: dict[str, int] = {}
        # Members that a record on its way to the log will bring in, with the soft state that the record does not hold.
        self.candidates: dict[str, Member] = {}

    # --- from and to the log

    @classmethod
    def from_metadata(cls, group_id: str, metadata: GroupMetadataValue | None) -> Membership:
        """Make the membership that the log describes; it is empty if the log has no generation."""
        membership = cls(group_id)
        if metadata is not None:
            membership._load(metadata)
        return membership

    def adopt(self, metadata: GroupMetadataValue) -> None:
        """Adopt a generation that was just replayed. Members that stay keep their soft state."""
        if not metadata.members and metadata.generation <= self.generation:
            # The first record of a group: the membership of those that join is newer.
            return
        state = GroupState.STABLE if metadata.members else GroupState.EMPTY
        if state is not self.state:
            self._check_transition(state)
        self._load(metadata)

    def _load(self, metadata: GroupMetadataValue) -> None:
        known, self.members = self.members, {}
        self.static_members.clear()
        self.support.clear()
        self.parked_joins = 0
        for written in metadata.members:
            member = self.candidates.pop(written.member_id, None) or known.get(written.member_id)
            if member is None:
                member = Member.from_record(written, metadata.protocol, self.group_id)
            member.assign(written.assignment)
            self._enter(member)
        self.unsynced &= self.members.keys()
        self.protocol_type = metadata.protocol_type or None
        self.protocol = metadata.protocol
        self.generation = metadata.generation
        self.leader = metadata.leader if metadata.leader in self.members else next(iter(self.members), None)
        self.state = GroupState.STABLE if metadata.members else GroupState.EMPTY
        self.state_timestamp_ms = metadata.current_state_timestamp

    def to_metadata(
        self, assignments: Mapping[str, bytes], members: Iterable[Member] | None = None, leader: str | None = None
    ) -> GroupMetadataValue:
        """The present generation for the log. `members` and `leader` stand in for the present ones where given."""
        if self.protocol is None:
            raise ValueError(f"group {self.group_id} has no protocol, so no generation to write")
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=leader or self.leader,
            current_state_timestamp=self.state_timestamp_ms,
            members=[
                member.to_record(self.protocol, assignments.get(member.member_id, b""))
                for member in (self.members.values() if members is None else members)
            ],
        )

    # --- states

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Change to a state that only exists in memory; `adopt` changes to Stable and Empty."""
        self._check_transition(state)
        self.state = state
        self.state_timestamp_ms = now_ms

    def prepare_rebalance(self, now_ms: int) -> None:
        """Wait for the joins of all members; without any, for those of a group that forms."""
        self.forming = self.state is GroupState.EMPTY
        self.newcomers = False
        self.move_to(GroupState.PREPARING_REBALANCE, now_ms)

    def begin_generation(self, now_ms: int) -> None:
        """The present members are those of the next generation, and have to fetch their assignments."""
        self.generation += 1
        self.protocol = self.select_protocol()
        self.move_to(GroupState.COMPLETING_REBALANCE, now_ms)
        self.unsynced = set(self.members)

    def pop_newcomers(self) -> bool:
        """Return whether new members came since the last call, or since the rebalance began."""
        newcomers, self.newcomers = self.newcomers, False
        return newcomers

    def _check_transition(self, state: GroupState) -> None:
        if self.state not in PREDECESSORS[state]:
            raise ValueError(f"group {self.group_id} cannot go from {self.state} to {state}")

    # --- members

    def _enter(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if member.parked_join is not None:
            self.parked_joins += 1
        self._count(member, 1)

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one decides the protocol type and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self._enter(member)
        self.pending.discard(member.member_id)

    def add_newcomer(self, member: Member, protocol_type: str) -> None:
        """Add a member that the group has not known before."""
        self.newcomers = True
        self.add(member, protocol_type)

    def remove(self, member_id: str) -> None:
        """Forget a member or a pending id; without effect if it is neither. Answer its parked requests before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.parked_join is not None:
                self.parked_joins -= 1
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if member_id == self.leader:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)

    def replace(self, old: Member, new: Member) -> None:
        """Continue a static member under a new id. Requests parked under the old id are fenced, as a duplicate's."""
        self.answer_join(old, error=ErrorCode.FENCED_INSTANCE_ID)
        self.answer_sync(old, error=ErrorCode.FENCED_INSTANCE_ID)
        leads = self.leader == old.member_id
        self.remove(old.member_id)
        self._enter(new)
        if leads:
            self.leader = new.member_id

    def update(self, member: Member, protocols: dict[str, bytes], rebalance_ms: int, session_ms: int) -> None:
        """Replace the protocols and timeouts that a member offers."""
        self._count(member, -1)
        member.offer(protocols, rebalance_ms, session_ms)
        self._count(member, 1)

    def _count(self, member: Member, by: int) -> None:
        for name in member.protocols:
            count = self.support.get(name, 0) + by
            if count:
                self.support[name] = count
            else:
                self.support.pop(name, None)

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Why a request in this name is refused; NONE if it is not. Fencing is KIP-345."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # --- parked answers

    def park_join(self, member: Member, parked: Deferred[Any]) -> None:
        """The member waits for the next generation. A join it sent before is superseded."""
        before = member.park_join(parked)
        if before is None:
            self.parked_joins += 1
        else:
            before.fail(KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))

    def answer_join(self, member: Member, response: object = None, error: ErrorCode = ErrorCode.NONE) -> None:
        """Complete the member's parked join, if there is one, with the response or the error."""
        parked = member.pop_join()
        if parked is not None:
            if self.members.get(member.member_id) is member:
                self.parked_joins -= 1
            if error:
                parked.fail(KafkaError(error))
            else:
                parked.complete(response)

    def answer_sync(self, member: Member, error: ErrorCode) -> bool:
        """Fail the member's parked sync with the error; return whether there was one."""
        parked = member.pop_sync()
        if parked is not None:
            parked.fail(KafkaError(error))
        return parked is not None

    # --- protocols, generations

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Return whether a client that offers this could be a member beside the present ones."""
        if not self.members and self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        # In a rebalance that all members have left, the protocol type still is theirs; any protocol of it will do.
        size = len(self.members)
        return protocol_type == self.protocol_type and any(self.support.get(name, 0) == size for name in protocols)

    def select_protocol(self, members: Iterable[Member] | None = None) -> str:
        """The protocol most members vote for among those that all speak; of several the one first voted for."""
        voters = list(self.members.values() if members is None else members)
        speakers: dict[str, int] = {}
        for member in voters:
            for name in member.protocols:
                speakers[name] = speakers.get(name, 0) + 1
        candidates = {name for name, count in speakers.items() if count == len(voters)}
        votes: dict[str, int] = {}
        for member in voters:
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    @property
    def all_joined(self) -> bool:
        """Whether all members that a rebalance waits for have joined."""
        return self.parked_joins == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time for which a rebalance waits: the longest rebalance timeout of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def sync_timeout_ms(self) -> int:
        """The time within which members must fetch their assignments.

        The rebalance timeout, as in Apache Kafka; but with a rebalance timeout of 0 (kafkajs joins with it where none
        is given) no member could be in time, so then the longest session timeout counts.
        """
        longest_ms = max((member.session_timeout_ms for member in self.members.values()), default=0)
        return self.rebalance_timeout_ms or longest_ms

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is among the members that joined; return False if none joined."""
        if self.leader is not None and self.members[self.leader].parked_join is not None:
            return True
        joined = next((member for member in self.members.values() if member.parked_join is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None
