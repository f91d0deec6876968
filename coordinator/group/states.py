"""The states of a classic consumer group, as tables: the predecessors of each, and its answer to each request.

`Dead` stands for "there is no such group (any more)": a group is born out of it by the first join or by a commit of a
simple consumer, and returns to it by tombstone. A transition that is in no table is illegal. Behaviour: Kafka's
ClassicGroupState.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from gregor.protocol.errors import ErrorCode


class GroupState(StrEnum):
    """Names as DescribeGroups and ListGroups spell them."""

    EMPTY = "Empty"
    """No members; the group lives on for its committed offsets. So do groups that only ever committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for all members to join: their joins are parked."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation exists; waiting for the leader to send its assignment: the syncs of the others are parked."""
    STABLE = "Stable"
    """Every member has, or can fetch, its assignment. The log has this state and Empty alone."""
    DEAD = "Dead"
    """No such group."""


PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    # The last member left or did not rejoin.
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    # A member came, went, or changed what it subscribes to.
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE},
    ),
    # All known members joined, or the time to do so is over.
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    # The leader's assignment is in the log.
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    # Tombstone, or the partition moved to another coordinator.
    GroupState.DEAD: frozenset(GroupState),
}


class Request(Enum):
    """The requests about a group; one API has several where the answer depends on the sender."""

    ADMIT = auto()
    """JoinGroup of a client that is no member: without id, or with one that was just handed out."""
    REJOIN = auto()
    """JoinGroup of a member."""
    REPLACE = auto()
    """JoinGroup without id of a static member that is known: the new process replaces the old one."""
    SYNC = auto()
    HEARTBEAT = auto()
    LEAVE = auto()
    COMMIT = auto()
    """OffsetCommit with a generation."""
    COMMIT_SIMPLE = auto()
    """OffsetCommit without generation: admin tools, and consumers that assign partitions themselves."""
    COMMIT_IN_TRANSACTION = auto()
    """TxnOffsetCommit with a generation, from v3 on (KIP-447)."""
    COMMIT_SIMPLE_IN_TRANSACTION = auto()
    """TxnOffsetCommit without generation: all before v3, and what COMMIT_SIMPLE has."""
    FETCH = auto()
    DELETE = auto()
    DELETE_OFFSETS = auto()
    """OffsetDelete. Served topic by topic where members are consumers; other members are NON_EMPTY_GROUP."""


class Action(Enum):
    """The ways to serve a request that is not refused."""

    SERVE = auto()
    """Carry it out and answer."""
    PARK = auto()
    """Hold the answer until the phase is over."""
    REBALANCE = auto()
    """Apply the change and begin a rebalance; a join is parked in it."""
    REPEAT = auto()
    """Answer with the current generation if the member offers what it offered before; else rebalance."""
    REPEAT_TO_FOLLOWER = auto()
    """As REPEAT, but the leader gets a rebalance: that is how it requests one when topics changed."""
    KEEP_PROTOCOL = auto()
    """Answer with the current generation if the group's protocol stays chosen; else rebalance."""


Answer = Action | ErrorCode

_UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


def _row(
    empty: Answer, preparing: Answer, completing: Answer, stable: Answer, dead: Answer
) -> dict[GroupState, Answer]:
    return dict(zip(GroupState, (empty, preparing, completing, stable, dead), strict=True))


# A static member exists only while the group has members, so REPLACE has no entry for Empty and Dead. The sender is
# checked first: a member that is unknown, fenced or of another generation gets that error in every state that has
# members.
ANSWERS: dict[Request, dict[GroupState, Answer]] = {
    #                           Empty, PreparingRebalance, CompletingRebalance, Stable, Dead
    Request.ADMIT: _row(Action.REBALANCE, Action.PARK, Action.REBALANCE, Action.REBALANCE, Action.REBALANCE),
    Request.REJOIN: _row(_UNKNOWN, Action.PARK, Action.REPEAT, Action.REPEAT_TO_FOLLOWER, _UNKNOWN),
    Request.REPLACE: {
        GroupState.PREPARING_REBALANCE: Action.PARK,
        # The leader may be computing an assignment for the old member id just now.
        GroupState.COMPLETING_REBALANCE: Action.REBALANCE,
        GroupState.STABLE: Action.KEEP_PROTOCOL,
    },
    Request.SYNC: _row(_UNKNOWN, _REBALANCING, Action.PARK, Action.SERVE, _UNKNOWN),
    # Clients send heartbeats from the join response on, so CompletingRebalance serves them.
    Request.HEARTBEAT: _row(_UNKNOWN, _REBALANCING, Action.SERVE, Action.SERVE, _UNKNOWN),
    Request.LEAVE: _row(_UNKNOWN, Action.SERVE, Action.REBALANCE, Action.REBALANCE, _UNKNOWN),
    # While members rejoin they may still commit what they read in the last generation; once there is a new one they
    # may not. Dead: GROUP_ID_NOT_FOUND from OffsetCommit v9 on.
    Request.COMMIT: _row(_UNKNOWN, Action.SERVE, _REBALANCING, Action.SERVE, ErrorCode.ILLEGAL_GENERATION),
    Request.COMMIT_SIMPLE: _row(Action.SERVE, _UNKNOWN, _UNKNOWN, _UNKNOWN, Action.SERVE),
    # As in Apache Kafka, the phase of a rebalance is not enforced: before KIP-447 a transactional id alone fenced the
    # other members, and its commits had no generation.
    Request.COMMIT_IN_TRANSACTION: _row(
        _UNKNOWN, Action.SERVE, Action.SERVE, Action.SERVE, ErrorCode.ILLEGAL_GENERATION
    ),
    Request.COMMIT_SIMPLE_IN_TRANSACTION: _row(Action.SERVE, Action.SERVE, Action.SERVE, Action.SERVE, Action.SERVE),
    # Dead: answered, with no offset for anything.
    Request.FETCH: _row(Action.SERVE, Action.SERVE, Action.SERVE, Action.SERVE, Action.SERVE),
    Request.DELETE: _row(
        Action.SERVE,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    Request.DELETE_OFFSETS: _row(Action.SERVE, Action.SERVE, Action.SERVE, Action.SERVE, ErrorCode.GROUP_ID_NOT_FOUND),
}
