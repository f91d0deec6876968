"""Following one leader, without IO: the fetch requests to send, and how a response changes this broker's logs.

Rules: Kafka's AbstractFetcherThread with truncation on fetch (KIP-595): each request names the epoch of the record
before the fetch offset; a leader that does not have that record returns the offset up to which both logs agree, and
this broker truncates its log to it. Incremental sessions (KIP-227): a request lists only what has changed since the
last.

Each request is followed by its response; partitions may be added and removed in between.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, cast

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.messages import FetchRequest, FetchResponse
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import Steps
from gregor.replication.partition.offset_lookup import truncation_offset
from gregor.storage.segment.batches import HEADER_BYTES, BatchHeader, runs_of_batches

if TYPE_CHECKING:
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.throttle import ReplicaThrottle
    from gregor.storage.log.log import Log


FIRST_VERSION = 12
"""Of Fetch: the first in which a leader returns where the logs diverge."""
LAST_VERSION_WITH_NAMES = 12
STATE_FROM = 15
MAX_PAUSE_S = 1.0
"""After it a throttled partition is checked again: the rate of the throttle may have changed."""
FIRST_BACKOFF_MS = 20
"""Doubled with each error in a row, up to `replica.fetch.backoff.ms`. A new leader receives its role when its followers
receive theirs: the first fetch may come too early, and the next should not come much later than the role."""
MAX_CHANGES = 500
"""Partitions in one request within a session; the changes of the others are in the next request."""
MAX_BATCHES = 250
"""Batches appended in one step, in a millisecond or less."""
NO_SESSION = 0
INITIAL_EPOCH = 0
"""The epoch of a session's first request."""
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
PASSING_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""While leaders move, thousands of partitions may get these, and a line in the log for each costs time."""
LAST_SESSION_EPOCH = 2**31 - 1
"""It is followed by 1."""
NO_EPOCH = -1

FetchFields = tuple[Uuid, int, int, int, int]
"""Of a partition in a request: topic id, leader epoch, offset, epoch of the record before it, log start offset."""
FETCH_POSITION = slice(4)
"""All of these but the log start offset, which retention advances here as it does at the leader."""

_log = logging.getLogger(__name__)


class FetcherSettings(NamedTuple):
    """`replica.fetch.*`, in bytes and milliseconds."""

    broker_id: int
    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000


class _FetchState:
    """One partition that this broker follows, and its fetch position. (Kafka's PartitionFetchState.)"""

    __slots__ = (
        "backoff_ms",
        "is_compared",
        "key",
        "lags",
        "last_fetched_epoch",
        "leader_epoch",
        "log",
        "not_before_ms",
        "offset",
        "partition",
        "topic_id",
    )

    def __init__(self, partition: Partition, log: Log) -> None:
        self.partition = partition
        self.key: TopicPartitionKey = (partition.topic, partition.partition)
        self.topic_id = partition.topic_id
        self.leader_epoch = partition.leader_epoch
        self.log = log
        self.backoff_ms = FIRST_BACKOFF_MS
        self.not_before_ms = 0
        self.lags = True
        """Behind the leader's high watermark, as far as this broker knows it."""
        self.is_compared = False
        """The leader has answered, in this epoch, that the log does not diverge from its own."""
        self.move_to_log_end()

    def move_to_log_end(self) -> None:
        self.offset = self.log.log_end_offset
        latest = self.log.latest_epoch()
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest

    def progressed(self) -> None:
        """Continue at the end of the log, to which the response of the leader has brought it."""
        self.backoff_ms = FIRST_BACKOFF_MS
        self.move_to_log_end()

    def appended(self, high_watermark: int) -> None:
        """Note that batches were appended, and the high watermark of the leader."""
        self.lags = self.log.log_end_offset < high_watermark

    def delay(self, now_ms: int, delay_ms: int) -> None:
        """Do not fetch the partition for this time."""
        self.not_before_ms = now_ms + delay_ms

    def back_off(self, now_ms: int, max_ms: int) -> None:
        """Delay the next fetch after a failure, twice as long as after the one before, and at most `max_ms`."""
        self.delay(now_ms, min(self.backoff_ms, max_ms))
        self.backoff_ms = min(self.backoff_ms * 2, max_ms)

    def compared(self) -> None:
        """Note that the leader has answered without divergence."""
        self.is_compared = True

    def is_foreign(self, records: memoryview, leader_log_start_offset: int) -> bool:
        """Whether the records of the log, all of them in front of the leader's log, may differ from those that the
        leader had there.

        The leader cannot compare what it has deleted. The two may differ above the high watermark; and they do if its
        first batch begins in front of the end of this log, where Kafka's follower fails for good.
        """
        log = self.log
        if not log.log_start_offset < log.log_end_offset <= leader_log_start_offset:
            return False
        if len(records) >= HEADER_BYTES and BatchHeader.read(records).base_offset < log.log_end_offset:
            return True
        return not self.is_compared and log.high_watermark < log.log_end_offset

    @property
    def fields(self) -> FetchFields:
        return self.topic_id, self.leader_epoch, self.offset, self.last_fetched_epoch, self.log.log_start_offset

    @property
    def is_current(self) -> bool:
        """False once the partition has another role, epoch or log than it was followed with."""
        partition = self.partition
        return (
            partition.leadership.log is None
            and partition.leader_epoch == self.leader_epoch
            and partition.log is self.log
        )


class Fetcher:
    """The partitions followed at one leader over one connection."""

    def __init__(self, settings: FetcherSettings, throttle: ReplicaThrottle | None = None) -> None:
        self._settings = settings
        self._throttle = throttle
        self._followed: dict[TopicPartitionKey, _FetchState] = {}
        self._sent: dict[TopicPartitionKey, FetchFields] = {}
        """The fields that the leader has of each partition in the session."""
        self._changed: dict[TopicPartitionKey, None] = {}
        """Partitions whose fields in the session are out of date, in the order in which they became so."""
        self._waiting: dict[TopicPartitionKey, None] = {}
        """Partitions that are not fetched before their `not_before_ms`."""
        self._truncated: dict[TopicPartitionKey, None] = {}
        """Partitions that are not fetched until the truncation of their logs is synced."""
        self._missed: set[TopicPartitionKey] = set()
        """Partitions whose data in a response was dropped, as it came while they were not to be fetched and the leader
        did not know that yet: in the leader's session they have received the high watermark."""
        self._names: dict[Uuid, str] = {}
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._without_id = 0
        self._refused_until_ms = 0
        self._has_sessions = True
        """As far as this broker knows: the session cache of the leader may be full."""
        self._has_charged = False
        """Whether records of a throttled replica were appended since the last request."""
        self._has_held = False
        """Whether the partitions of the session were checked since the throttle has begun to delay fetches."""

    def __len__(self) -> int:
        return len(self._followed)

    # -- partitions ------------------------------------------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from now on, or in a new leader epoch. It has a log, and this broker does not lead it.

        Where a log without leader epochs differs from the leader's cannot be found: it is truncated to its high
        watermark first, as before there were leader epochs. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        log = partition.log
        assert log is not None
        if log.latest_epoch() is None:
            log.truncate_to(log.high_watermark)
        followed = _FetchState(partition, log)
        self.unfollow(followed.key)
        self._followed[followed.key] = followed
        self._hold_if_truncated(followed)
        if len(self._names) > 2 * len(self._followed):  # many topics were deleted
            self._names = {one.topic_id: one.key[0] for one in self._followed.values()}
        self._names[followed.topic_id] = partition.topic
        self._changed[followed.key] = None
        self._without_id += followed.topic_id == ZERO_UUID

    def unfollow(self, key: TopicPartitionKey) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._waiting.pop(key, None)
            self._truncated.pop(key, None)
            self._changed[key] = None
            self._without_id -= followed.topic_id == ZERO_UUID

    @property
    def has_truncated(self) -> bool:
        return bool(self._truncated)

    def truncated_logs(self) -> list[Log]:
        """Return the truncated logs of partitions that are not fetched until `synced` is called with the log."""
        return [self._followed[key].log for key in self._truncated]

    def synced(self, log: Log) -> None:
        """Fetch the partition of a log again: its truncation is synced, or cannot be."""
        key = log.topic, log.partition
        followed = self._followed.get(key)
        if followed is not None and followed.log is log and key in self._truncated:
            del self._truncated[key]
            self._changed[key] = None

    def _hold_if_truncated(self, followed: _FetchState) -> None:
        if followed.log.flusher.is_truncated:
            self._truncated[followed.key] = None
            self._changed[followed.key] = None

    def followed(self) -> list[TopicPartitionKey]:
        return list(self._followed)

    def leader_epoch(self, key: TopicPartitionKey) -> int | None:
        """Return the leader epoch in which a partition is fetched, None if it is not."""
        followed = self._followed.get(key)
        return None if followed is None else followed.leader_epoch

    # -- requests ----------------------------------------------------------------------------------------------

    def wait_ms(self, now_ms: int) -> int | None:
        """Return how long there is nothing to fetch: 0 to fetch now, None until a partition is added or synced."""
        if left_ms := self._left_ms(self._refused_until_ms, now_ms):
            return left_ms
        waiting = self._waiting.keys() - self._truncated.keys() if self._truncated else self._waiting
        if len(self._followed) > len(waiting) + len(self._truncated):
            return 0
        if not waiting:
            return None
        return min(self._left_ms(self._followed[key].not_before_ms, now_ms) for key in waiting)

    def _left_ms(self, until_ms: int, now_ms: int) -> int:
        """Return the time until then. A clock that was set back does not make it longer than any wait is."""
        left_ms = until_ms - now_ms
        return left_ms if 0 < left_ms <= max(self._settings.backoff_ms, MAX_PAUSE_S * 1000) else 0

    @property
    def max_version(self) -> int:
        """The newest version of Fetch that can name all the topics."""
        return LAST_VERSION_WITH_NAMES if self._without_id else FetchRequest.MAX_VERSION

    def request(self, now_ms: int, broker_epoch: int, version: int = FetchRequest.MAX_VERSION) -> FetchRequest:
        """Return the next request, for a version from FIRST_VERSION to `max_version`.

        A call of `complete` or `failed` must follow before the next one.
        """
        for key in [key for key in self._waiting if not self._left_ms(self._followed[key].not_before_ms, now_ms)]:
            del self._waiting[key]
            self._changed[key] = None
        if self._has_charged:
            self._hold_throttled()
        if self._session_epoch == INITIAL_EPOCH:
            self._sent.clear()
            self._missed.clear()
            self._changed = dict.fromkeys(self._followed)
        wanted: dict[str, FetchRequest.FetchTopic] = {}
        forgotten: list[FetchRequest.ForgottenTopic] = []
        changed, later = self._changed, {}
        if self._has_sessions and len(changed) > MAX_CHANGES:
            keys = list(changed)
            changed, later = dict.fromkeys(keys[:MAX_CHANGES]), dict.fromkeys(keys[MAX_CHANGES:])
        for key in changed:
            if not self._add(key, wanted, forgotten, now_ms):
                later[key] = None
        self._changed = later
        broker_id = self._settings.broker_id
        has_state = version >= STATE_FROM
        return FetchRequest(
            replica_id=-1 if has_state else broker_id,
            replica_state=FetchRequest.ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch)
            if has_state
            else FetchRequest.ReplicaState(),
            max_wait_ms=0 if later else self._wait_max_ms(now_ms),
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(wanted.values()),
            forgotten_topics_data=forgotten,
        )

    def _wait_max_ms(self, now_ms: int) -> int:
        """Return how long the leader may wait: not beyond the time at which a waiting partition is fetched again."""
        max_ms = self._settings.wait_max_ms
        for key in self._waiting:
            max_ms = min(max_ms, self._followed[key].not_before_ms - now_ms)
        return max_ms

    def _must_wait(self, followed: _FetchState, now_ms: int) -> bool:
        """Whether the throttle delays the fetch of a partition, which lags behind its leader."""
        if self._throttle is None or not followed.lags or not self._is_throttled(followed):
            return False
        wait_s = self._throttle.wait_s()
        if not wait_s:
            self._has_held = False
            return False
        followed.delay(now_ms, max(1, int(min(wait_s, MAX_PAUSE_S) * 1000)))
        self._waiting[followed.key] = None
        return True

    def _hold_throttled(self) -> None:
        """Check the throttled partitions of the session once the throttle delays fetches; Kafka does at each request.

        Only those with records in the last response are checked as changes. The leader would send records of each of
        the others once more, however many they are, and the throttle counts no more than a window of them.
        """
        self._has_charged = False
        if self._throttle is None or not self._throttle.wait_s():
            self._has_held = False
            return
        if self._has_held and self._waiting:
            return
        self._has_held = True
        for key in self._sent:
            followed = self._followed.get(key)
            if followed is not None and followed.lags and self._is_throttled(followed):
                self._changed[key] = None

    def _is_throttled(self, followed: _FetchState) -> bool:
        replicas = followed.log.config.follower_replication_throttled_replicas
        return self._throttle is not None and self._throttle.names(replicas, followed.key[1])

    def _add(
        self,
        key: TopicPartitionKey,
        wanted: dict[str, FetchRequest.FetchTopic],
        forgotten: list[FetchRequest.ForgottenTopic],
        now_ms: int,
    ) -> bool:
        """Add a partition to a request, as a change of the session. False if it must be in the next request, too.

        That is so where the leader must first remove it from the session, as it counts dropped data as received.
        """
        name, index = key
        before = self._sent.get(key)
        followed = None if key in self._waiting or key in self._truncated else self._followed.get(key)
        fields = None if followed is None or self._must_wait(followed, now_ms) else followed.fields
        missed = key in self._missed
        if fields == before and not missed:
            return True
        if before is not None and (missed or fields is None or fields[0] != before[0]):
            forgotten.append(FetchRequest.ForgottenTopic(topic=name, topic_id=before[0], partitions=[index]))
            del self._sent[key]
            self._missed.discard(key)
            if missed and fields is not None:
                return False
        if fields is not None:
            topic_id, leader_epoch, offset, last_fetched_epoch, log_start_offset = self._sent[key] = fields
            topic = wanted.get(name)
            if topic is None:
                topic = wanted[name] = FetchRequest.FetchTopic(topic=name, topic_id=topic_id)
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_fetched_epoch,
                    log_start_offset=log_start_offset,
                    partition_max_bytes=self._settings.max_bytes,
                )
            )
        return True

    # -- responses ---------------------------------------------------------------------------------------------

    def failed(self, now_ms: int) -> None:
        """Begin a new session after a request without a response. The leader closes the old one if it still exists."""
        self._session_epoch = INITIAL_EPOCH

    def complete(self, response: FetchResponse, now_ms: int) -> Steps[list[TopicPartitionKey]]:
        """Append what was fetched. Returns the partitions whose fetch offset is outside the leader's log.

        Those need a call of `reset_to_range`. Partitions may be added and removed between two steps.
        """
        if response.error_code:
            self._request_failed(response.error_code, now_ms)
            return []
        self._has_sessions = response.session_id != NO_SESSION
        if not self._has_sessions:
            self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._session_id = response.session_id
            self._session_epoch = self._session_epoch % LAST_SESSION_EPOCH + 1
        outside: list[TopicPartitionKey] = []
        for topic in response.responses:
            name = topic.topic or self._names.get(topic.topic_id, "")
            for data in topic.partitions:
                key = name, data.partition_index
                sent = self._sent.get(key)
                followed = None if key in self._waiting or key in self._truncated else self._followed.get(key)
                if followed is None or sent is None or sent[FETCH_POSITION] != followed.fields[FETCH_POSITION]:
                    # Since the request it has got another fetch position, or is not to be fetched now.
                    if sent is not None:
                        self._missed.add(key)
                    if followed is not None:
                        self._changed[key] = None
                    continue
                if not followed.is_current:
                    self.unfollow(key)
                elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    outside.append(key)
                    self._wait(followed, now_ms)
                elif data.error_code:
                    self._partition_failed(followed, data.error_code, now_ms)
                else:
                    yield from self._write(followed, data, now_ms)
                yield None
        return outside

    def _request_failed(self, code: int, now_ms: int) -> None:
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        if code not in SESSION_ERRORS:
            _log.warning("a leader refuses a follower's fetch: error %d", code)
            self._refused_until_ms = now_ms + self._settings.backoff_ms

    def _partition_failed(self, followed: _FetchState, code: int, now_ms: int) -> None:
        name, index = followed.key
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            # There is a newer leader, which the controller sends in a later request.
            _log.debug(
                "%s-%d is not followed in epoch %d any more: there is a newer one", name, index, followed.leader_epoch
            )
            self.unfollow(followed.key)
            return
        # The leader may not have received its role yet, or its disk has failed, or another broker becomes the leader.
        level = logging.DEBUG if code in PASSING_ERRORS else logging.INFO
        _log.log(level, "%s-%d cannot be fetched now: error %d", name, index, code)
        self._wait(followed, now_ms)

    def _wait(self, followed: _FetchState, now_ms: int) -> None:
        followed.back_off(now_ms, self._settings.backoff_ms)
        self._waiting[followed.key] = None
        self._changed[followed.key] = None

    def _write(
        self, followed: _FetchState, data: FetchResponse.PartitionData, now_ms: int
    ) -> Generator[None, None, None]:
        """Append in steps of MAX_BATCHES, as the checks of many small batches are slow."""
        diverging, fetched = data.diverging_epoch, memoryview(cast("memoryview", data.records or b""))
        try:
            if diverging.epoch >= 0 or diverging.end_offset >= 0:
                offset = truncation_offset(followed.log, diverging.epoch, diverging.end_offset)
                followed.log.truncate_to(offset, now_ms)
                self._hold_if_truncated(followed)
            elif followed.is_foreign(fetched, data.log_start_offset):
                _restart(followed, data.log_start_offset, now_ms)
                self._hold_if_truncated(followed)
                self._missed.add(followed.key)
            else:
                followed.compared()
                begun = False
                for records in runs_of_batches(fetched, MAX_BATCHES):
                    if begun:
                        yield
                        if self._followed.get(followed.key) is not followed or not followed.is_current:
                            return
                    begun = True
                    followed.partition.append_as_follower(records, data.high_watermark, data.log_start_offset, now_ms)
                    if self._throttle is not None and len(records) and self._is_throttled(followed):
                        self._throttle.charge(len(records))
                        self._has_charged = True
                followed.appended(data.high_watermark)
        except KafkaError as error:
            name, index = followed.key
            _log.error("%s-%d: the batches of its leader cannot be appended: %s", name, index, error)
            # After a failure of the disk the partition goes offline soon; any other error may pass. Some of the batches
            # may have been appended.
            followed.move_to_log_end()
            self._wait(followed, now_ms)
            return
        followed.progressed()
        self._changed[followed.key] = None

    def reset_to_range(
        self, key: TopicPartitionKey, leader_epoch: int, start_offset: int, end_offset: int, now_ms: int
    ) -> None:
        """Continue within the leader's log, which reaches from `start_offset` to `end_offset`.

        A leader's log that is shorter than ours has lost records in an unclean election: ours is truncated to its end.
        A leader's log that begins beyond the end of ours has no record that continues ours, which is truncated as a
        whole and begins where the leader's does.
        """
        followed = self._followed.get(key)
        if followed is None or followed.leader_epoch != leader_epoch or not followed.is_current:
            return
        log, (name, index) = followed.log, key
        try:
            if end_offset < log.log_end_offset:
                _log.warning(
                    "%s-%d: truncated from offset %d to %d, the log end offset of its leader",
                    name,
                    index,
                    log.log_end_offset,
                    end_offset,
                )
                log.truncate_to(end_offset, now_ms)
            elif start_offset > log.log_end_offset:
                _restart(followed, start_offset, now_ms)
            self._hold_if_truncated(followed)
        except KafkaError as error:
            _log.error(
                "%s-%d, with offsets from %d to %d, could not be brought within its leader's, from %d to %d: %s",
                name, index, log.log_start_offset, log.log_end_offset, start_offset, end_offset, error,
            )  # fmt: skip
            followed.move_to_log_end()
            return
        followed.move_to_log_end()
        if followed.backoff_ms <= 2 * FIRST_BACKOFF_MS:  # after repeated errors it still waits
            self._waiting.pop(key, None)
        self._changed[key] = None


def _restart(followed: _FetchState, start_offset: int, now_ms: int) -> None:
    name, index = followed.key
    _log.warning(
        "%s-%d: truncated as a whole; it begins at offset %d, the log start offset of its leader",
        name,
        index,
        start_offset,
    )
    followed.log.truncate_fully_and_start_at(start_offset, now_ms)
