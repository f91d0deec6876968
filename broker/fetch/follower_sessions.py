"""The leader's side of replication: fetches of followers, answered from sessions that remember what is idle.

A follower replicates hundreds of partitions over one connection, of which few change at a time. Its session watches all
of them, and a fetch works only on those that the request names, that have changed, or of which the follower has not
received all: the others cost nothing. Fetch sessions otherwise as KIP-227 has them; one belongs to a follower's
fetcher, by its client id, and occupies no slot of the consumers' sessions (Kafka's "privileged" sessions).

A follower that does not mention a partition in its own fetch is where it was, at the leader's log end offset; when the
partition changes again, the follower had caught up until the session's last fetch, from which
`replica.lag.time.max.ms` is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.broker.fetch.follower import FollowerRead, ParkedFetch
from gregor.broker.fetch.follower_session import FollowerSession, propose_expansion
from gregor.broker.fetch.reads import TOPIC_IDS_FROM
from gregor.broker.fetch.session_cache import FINAL_EPOCH, INITIAL_EPOCH, SessionCache
from gregor.protocol.errors import KafkaError
from gregor.protocol.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext
    from gregor.broker.fetch.follower_session import AlterPartition
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.throttle import ReplicaThrottle

SESSIONS_FROM = 12
"""Version of Fetch. Followers that speak an older one are served as consumers are."""
STATE_FROM = 15
DEFAULT_SLOTS = 1000


class FollowerSessions:
    """The sessions of all followers of this broker. A client that poses as many followers gets at most `slots` of them:
    the other requests are answered without a session, as Kafka does when its cache is full."""

    def __init__(
        self,
        slots: int = DEFAULT_SLOTS,
        *,
        alter_partition: AlterPartition | None = None,
        throttle: ReplicaThrottle | None = None,
        notifies_at_once: bool = False,
    ) -> None:
        """`alter_partition` is called when a follower has caught up that the controller does not count as in sync.
        `notifies_at_once`: a high watermark alone completes a fetch, as consumers may read from the followers."""
        self.cache: SessionCache[FollowerSession] = SessionCache(slots, self._ended)
        self.alter_partition = alter_partition
        self.throttle = throttle
        self.notifies_at_once = notifies_at_once
        self.fetchers: dict[tuple[int, str | None], int] = {}
        """Session id by broker id and client id of the follower's fetcher."""

    def __len__(self) -> int:
        return len(self.cache)

    def fetch(self, broker: DataContext, request: FetchRequest, call: Call) -> FetchResponse | ParkedFetch:
        """Respond to a fetch of a follower, in version SESSIONS_FROM or later."""
        now_ms = broker.now_ms()
        incremental = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        try:
            if incremental:
                session = self.cache.resume(request, call.version >= TOPIC_IDS_FROM)
            else:
                session = self._opened(broker, request, call, now_ms)
            if session.waiting is not None:
                session.waiting.give_way()
            self.cache.update(session, request)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        read = FollowerRead(broker, session, request, call, incremental, self.alter_partition, self.throttle)
        read.arrived(now_ms, request.replica_state.replica_epoch if call.version >= STATE_FROM else -1)
        session.fetched(now_ms)
        read.collect()
        if not read.missing and (read.satisfied or request.max_wait_ms <= 0):
            response = read.response()
            if not session.id:
                session.close()
            return response
        return ParkedFetch(broker.loop, read, max(0, request.max_wait_ms) / 1000)

    def propose_expansion(self, partition: Partition, replica_id: int) -> None:
        """Propose a follower as in sync, if it has caught up with its fetch."""
        propose_expansion(self.alter_partition, partition, replica_id)

    def _opened(self, broker: DataContext, request: FetchRequest, call: Call, now_ms: int) -> FollowerSession:
        """Make a session, which replaces the fetcher's earlier one. It gets no id if the request wants none, names no
        partition, or there is no room."""
        replica_id = replica_of(request, call.version)
        fetcher = replica_id, call.client_id
        for known in {request.session_id, self.fetchers.get(fetcher, 0)}:
            self.cache.end(known)
        session = FollowerSession(replica_id, call.version >= TOPIC_IDS_FROM, self.notifies_at_once)
        wanted = sum(len(topic.partitions) for topic in request.topics)
        if (
            request.session_epoch == INITIAL_EPOCH
            and wanted
            and self._make_room(wanted, replica_id, broker.metadata.is_alive, now_ms)
        ):
            session.fetcher = fetcher
            self.cache.add(session)
            self.fetchers[fetcher] = session.id
        return session

    def _ended(self, session: FollowerSession) -> None:
        del self.fetchers[session.fetcher]
        session.close()

    def _make_room(self, position_count: int, replica_id: int, is_alive: Callable[[int], bool], now_ms: int) -> bool:
        """Return whether there is room for a session of this broker. A session of a broker that is not in the cluster
        gives way to one of a broker that is."""
        if not is_alive(replica_id):
            return self.cache.make_room(position_count, now_ms)
        return self.cache.make_room(position_count, now_ms, lambda session: not is_alive(session.replica_id))

    def forget(self, is_alive: Callable[[int], bool]) -> None:
        """End the sessions of brokers that have left the cluster."""
        for fetcher, session_id in list(self.fetchers.items()):
            if not is_alive(fetcher[0]):
                self.cache.end(session_id)


def replica_of(request: FetchRequest, version: int) -> int:
    """Return the follower's broker id, a negative number for a consumer."""
    replica_id: int = request.replica_id if version < STATE_FROM else request.replica_state.replica_id
    return replica_id
