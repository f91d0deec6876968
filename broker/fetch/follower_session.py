"""The fetch session of a follower: its fetch position in each partition, and which of them need work.

A position is `busy` when its partition must be read or checked for the next response, `resting` when it has nothing to
send but may not be left alone (not in sync, or throttled), else idle: it costs nothing until its partition changes,
which the session watches.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from gregor.broker.fetch.session_cache import INITIAL_EPOCH, NO_SESSION, SessionPartition

if TYPE_CHECKING:
    from gregor.broker.context import DataContext
    from gregor.protocol.messages import FetchRequest
    from gregor.replication.partition.partition import Partition

RESTING_SHARE = 4

AlterPartition = Callable[["Partition", list[int]], None]


class WaitingRequest(Protocol):
    """A fetch of the session that waits for records."""

    def moved(self) -> None:
        """Note that one of the session's partitions has changed."""

    def give_way(self) -> None:
        """Respond without records: another fetch of the session has arrived, or the session ends."""


class FetchPosition:
    """The position of a follower in one partition, and the offsets in the last response."""

    __slots__ = (
        "_generation",
        "_handle",
        "_session",
        "index",
        "key",
        "last_fetched_epoch",
        "last_sent_high_watermark",
        "last_sent_log_start_offset",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "partition",
    )

    def __init__(self, session: FollowerSession, key: SessionPartition) -> None:
        self.key = key
        self.index = key[2]
        self.partition: Partition | None = None
        self.forget_last_sent()
        self.leader_epoch = -1
        self._session = session
        self._handle = 0
        self._generation = -1

    def forget_last_sent(self) -> None:
        """Have the next response repeat the high watermark and the log start offset."""
        self.last_sent_high_watermark = self.last_sent_log_start_offset = -1

    def update(self, wanted: FetchRequest.FetchPartition) -> None:
        """Store the position and the limits from a request."""
        if wanted.current_leader_epoch != self.leader_epoch:
            self.forget_last_sent()  # the follower has started again, and may not know what was sent before
        self.leader_epoch = wanted.current_leader_epoch
        self.offset = wanted.fetch_offset
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = wanted.partition_max_bytes

    def find(self, broker: DataContext) -> Partition | None:
        """Return the local replica, and watch it from now on."""
        generation = broker.replicas.generation
        if generation != self._generation:
            self._generation = generation
            partition = broker.partition_of(*self.key)
            if partition is not self.partition:
                self.leave()
                self.partition = partition
                if partition is not None:
                    self._handle = partition.delayed.watch(self._moved)
        return self.partition

    def leave(self) -> None:
        """Stop watching the replica."""
        if self.partition is not None:
            self.partition.delayed.unwatch(self._handle)
            self.partition = None

    @property
    def is_idle(self) -> bool:
        """Whether the position needs no work until the partition changes.

        A follower that is not in sync may become so with any fetch. So may one whose removal from the in-sync replicas
        is requested: it caught up while another change of them was in progress. Where the leadership began while a
        fetch waited, only the next fetch shows the position of the follower.
        """
        partition = self.partition
        return (
            partition is not None
            and partition.log_end_offset == self.offset
            and self.last_sent_high_watermark == partition.high_watermark
            and (
                partition.in_sync.stays_in_sync(self._session.replica_id, self.offset)
                or partition.leadership.log is None
            )
        )

    def _moved(self) -> None:
        session, partition = self._session, self.partition
        assert partition is not None
        if self not in session.busy:
            if self not in session.resting:
                partition.in_sync.record_caught_up(session.replica_id, self.offset, session.last_fetch_ms)
            session.wake(self)
        # A high watermark alone is sent in time with the next records, or at the end of the wait.
        if session.waiting is not None and (
            partition.log_end_offset != self.offset
            or partition.leadership.log is None
            or partition.log_start_offset != self.last_sent_log_start_offset
            or (session.notifies_at_once and partition.high_watermark != self.last_sent_high_watermark)
        ):
            session.waiting.moved()


class FollowerSession:
    """One fetcher of one follower. `busy` begins with the positions that were not served for the longest time. Where
    many positions rest, each fetch works on some of them in turn."""

    def __init__(self, replica_id: int, uses_ids: bool, notifies_at_once: bool = False) -> None:
        self.id = NO_SESSION
        self.notifies_at_once = notifies_at_once
        self.epoch = INITIAL_EPOCH
        self.replica_id = replica_id
        self.uses_ids = uses_ids
        self.fetcher: tuple[int, str | None] = replica_id, None
        self.last_fetch_ms = 0
        self.positions: dict[SessionPartition, FetchPosition] = {}
        self.busy: dict[FetchPosition, None] = {}
        self.resting: dict[FetchPosition, None] = {}
        self.waiting: WaitingRequest | None = None

    @property
    def position_count(self) -> int:
        """The number of its positions."""
        return len(self.positions)

    def open(self, session_id: int) -> None:
        """Become a session of this id; the request that has opened it counts."""
        self.id = session_id
        self.epoch = INITIAL_EPOCH + 1

    def update(self, request: FetchRequest) -> None:
        """Store the changes that a request makes to the session's partitions and positions."""
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                position = self.positions.pop((gone.topic, gone.topic_id, index), None)
                if position is not None:
                    self._drop(position)
        for topic in request.topics:
            for wanted in topic.partitions:
                key = topic.topic, topic.topic_id, wanted.partition
                position = self.positions.get(key)
                if position is None:
                    position = self.positions[key] = FetchPosition(self, key)
                position.update(wanted)
                self.wake(position)

    def wake(self, position: FetchPosition) -> None:
        """Make a position busy."""
        self.resting.pop(position, None)
        self.busy[position] = None

    def rest(self, position: FetchPosition) -> None:
        """Let a position rest, behind the others that rest: there is nothing to send for now."""
        self.make_idle(position)
        self.resting[position] = None

    def make_idle(self, position: FetchPosition) -> None:
        """Leave a position out of the next fetches, until its partition changes."""
        self.busy.pop(position, None)
        self.resting.pop(position, None)

    def row(self, limit: int) -> list[FetchPosition]:
        """Return the next positions to work on: at most `limit` busy ones, and always some of those that rest."""
        row = list(islice(self.busy, limit))
        row += islice(self.resting, max(limit - len(row), limit // RESTING_SHARE, 1))
        return row

    def park(self, fetch: WaitingRequest) -> None:
        """Notify `fetch` of changes from now on."""
        self.waiting = fetch

    def fetched(self, now_ms: int) -> None:
        """Note that a fetch of the session has arrived, and that its positions are recorded."""
        self.last_fetch_ms = now_ms

    def unpark(self, fetch: WaitingRequest) -> None:
        """Stop notifying `fetch`, if no later one has replaced it. A session without an id ends with its fetch."""
        if self.waiting is fetch:
            self.waiting = None
        if not self.id:
            self.close()

    def close(self) -> None:
        """Complete the fetch that waits, and stop watching the partitions."""
        if self.waiting is not None:
            self.waiting.give_way()
        for position in self.positions.values():
            self._drop(position)
        self.positions.clear()

    def _drop(self, position: FetchPosition) -> None:
        if position.partition is not None and position not in self.busy and position not in self.resting:
            position.partition.in_sync.record_caught_up(self.replica_id, position.offset, self.last_fetch_ms)
        position.leave()
        self.make_idle(position)


def propose_expansion(alter_partition: AlterPartition | None, partition: Partition, replica_id: int) -> None:
    """Propose the follower as in sync, if it has caught up with this fetch."""
    if alter_partition is None:
        return
    isr = partition.in_sync.isr_to_expand(replica_id, partition.high_watermark)
    if isr is not None:
        alter_partition(partition, isr)
