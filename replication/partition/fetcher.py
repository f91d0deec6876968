"""Following one leader, without IO: what to ask it for, and what its answers do to our logs.

Rules: Kafka's AbstractFetcherThread with truncation on fetch (KIP-595): each request names the epoch of the record
before the one it wants; a leader that does not have that record says where both logs still agree, and what lies behind
is cut off here. Incremental sessions (KIP-227): a request lists only what has changed since the last.

Requests and answers take turns; partitions may come and go in between.
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
from gregor.replication.partition.divergence import truncate_to_epoch
from gregor.storage.segment.batches import runs_of_batches

if TYPE_CHECKING:
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.throttle import ReplicaThrottle
    from gregor.storage.log.log import Log


FIRST_VERSION = 12
"""Of Fetch: the first in which a leader tells where the logs diverge."""
LAST_VERSION_WITH_NAMES = 12
STATE_FROM = 15
MAX_PAUSE_S = 1.0
"""The rate of a throttle may be another by then."""
FIRST_BACKOFF_MS = 20
"""Doubled with each error in a row, up to `replica.fetch.backoff.ms`. A new leader hears of itself when its followers
do; who asks too early must not be late for it."""
MAX_NEWS = 500
"""So many partitions are told of in one request, as long as there is a session to tell of the others next time."""
MAX_BATCHES = 250
"""So many are written in one step, in a millisecond or less."""
NO_SESSION = 0
OPENS = 0
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
"""While leaders move, thousands of partitions may be answered with these, and a line in the log for each takes time."""
LAST_SESSION_EPOCH = 2**31 - 1
"""After it comes 1 again."""
NO_EPOCH = -1

Question = tuple[Uuid, int, int, int, int]
"""Topic id, leader epoch, offset, epoch of the record before it, log start offset."""
PLACE = slice(4)
"""Of a question: all but the log's start, which retention moves here as it does at the leader."""

_log = logging.getLogger(__name__)


class FetcherSettings(NamedTuple):
    """`replica.fetch.*`, in bytes and milliseconds."""

    broker_id: int
    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000


class _Followed:
    """One partition that this broker follows, and from where it goes on."""

    __slots__ = (
        "backoff_ms",
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
        """Behind what the leader has committed, as far as is known."""
        self.find_place()

    def find_place(self) -> None:
        """Where the log ends now."""
        self.offset = self.log.log_end_offset
        latest = self.log.latest_epoch()
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest

    @property
    def question(self) -> Question:
        return self.topic_id, self.leader_epoch, self.offset, self.last_fetched_epoch, self.log.log_start_offset

    @property
    def is_current(self) -> bool:
        """False once the partition has another role, epoch or log than it was followed with."""
        partition = self.partition
        return not partition.is_leader and partition.leader_epoch == self.leader_epoch and partition.log is self.log


class Fetcher:
    """The partitions followed at one leader over one connection."""

    def __init__(self, settings: FetcherSettings, throttle: ReplicaThrottle | None = None) -> None:
        self._settings = settings
        self._throttle = throttle
        self._followed: dict[TopicPartitionKey, _Followed] = {}
        self._asked: dict[TopicPartitionKey, Question] = {}
        """What the leader has been asked, and goes on answering while the session lasts."""
        self._changed: dict[TopicPartitionKey, None] = {}
        """Where that is not what should be asked now. In the order in which it became so."""
        self._waiting: dict[TopicPartitionKey, None] = {}
        """Asked for again at `not_before_ms`, until then not at all."""
        self._cut: dict[TopicPartitionKey, None] = {}
        """Not asked for until their logs are synced."""
        self._missed: set[TopicPartitionKey] = set()
        """An answer was not taken, because it came while they were not to be asked for and the leader had not heard of
        that yet: it believes that it has told them how far records are committed."""
        self._names: dict[Uuid, str] = {}
        self._session_id = NO_SESSION
        self._session_epoch = OPENS
        self._without_id = 0
        self._refused_until_ms = 0
        self._has_sessions = True
        """As far as we know: the leader may have no room for one."""

    def __len__(self) -> int:
        return len(self._followed)

    # -- who is followed -------------------------------------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Begin, or begin anew in another epoch. The partition has a log and does not lead.

        A log without a single epoch cannot say where it may differ from the leader's: what is not known to be
        committed is cut off first, as it was before there were epochs. KafkaError KAFKA_STORAGE_ERROR.
        """
        log = partition.log
        assert log is not None
        if log.latest_epoch() is None:
            log.truncate_to(log.high_watermark)
        followed = _Followed(partition, log)
        self.unfollow(followed.key)
        self._followed[followed.key] = followed
        self._hold_if_truncated(followed)
        if len(self._names) > 2 * len(self._followed):  # others were deleted
            self._names = {one.topic_id: one.key[0] for one in self._followed.values()}
        self._names[followed.topic_id] = partition.topic
        self._changed[followed.key] = None
        self._without_id += followed.topic_id == ZERO_UUID

    def unfollow(self, key: TopicPartitionKey) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._waiting.pop(key, None)
            self._cut.pop(key, None)
            self._changed[key] = None
            self._without_id -= followed.topic_id == ZERO_UUID

    @property
    def has_truncated(self) -> bool:
        return bool(self._cut)

    def truncated_logs(self) -> list[Log]:
        """Of partitions that are not asked for until these are synced: `synced` says when."""
        return [self._followed[key].log for key in self._cut]

    def synced(self, log: Log) -> None:
        """It is on the disk that the log was cut, or it cannot be brought there: go on behind the cut."""
        key = log.topic, log.partition
        followed = self._followed.get(key)
        if followed is not None and followed.log is log and key in self._cut:
            del self._cut[key]
            self._changed[key] = None

    def _hold_if_truncated(self, followed: _Followed) -> None:
        if followed.log.is_cut:
            self._cut[followed.key] = None
            self._changed[followed.key] = None

    def followed(self) -> list[TopicPartitionKey]:
        return list(self._followed)

    def leader_epoch(self, key: TopicPartitionKey) -> int | None:
        """In which a partition is followed."""
        followed = self._followed.get(key)
        return None if followed is None else followed.leader_epoch

    # -- asking ------------------------------------------------------------------------------------------------

    def wait_ms(self, now_ms: int) -> int | None:
        """How long there is nothing to ask for: 0 to ask now, None until somebody is followed."""
        if left_ms := self._left_ms(self._refused_until_ms, now_ms):
            return left_ms
        waiting = self._waiting.keys() - self._cut.keys() if self._cut else self._waiting
        if len(self._followed) > len(waiting) + len(self._cut):
            return 0
        if not waiting:
            return None
        return min(self._left_ms(self._followed[key].not_before_ms, now_ms) for key in waiting)

    def _left_ms(self, until_ms: int, now_ms: int) -> int:
        """Until then; but a clock that was set back makes no wait longer than waits are."""
        left_ms = until_ms - now_ms
        return left_ms if 0 < left_ms <= max(self._settings.backoff_ms, MAX_PAUSE_S * 1000) else 0

    @property
    def max_version(self) -> int:
        """The newest version of Fetch in which all topics can be named."""
        return LAST_VERSION_WITH_NAMES if self._without_id else FetchRequest.MAX_VERSION

    def request(self, now_ms: int, broker_epoch: int, version: int = FetchRequest.MAX_VERSION) -> FetchRequest:
        """The next question, as that version of Fetch words it (FIRST_VERSION to `max_version`). `take` or `failed`
        must follow, before the next."""
        for key in [key for key in self._waiting if not self._left_ms(self._followed[key].not_before_ms, now_ms)]:
            del self._waiting[key]
            self._changed[key] = None
        if self._session_epoch == OPENS:
            self._asked.clear()
            self._missed.clear()
            self._changed = dict.fromkeys(self._followed)
        wanted: dict[str, FetchRequest.FetchTopic] = {}
        forgotten: list[FetchRequest.ForgottenTopic] = []
        changed, later = self._changed, {}
        if self._has_sessions and len(changed) > MAX_NEWS:
            keys = list(changed)
            changed, later = dict.fromkeys(keys[:MAX_NEWS]), dict.fromkeys(keys[MAX_NEWS:])
        for key in changed:
            if not self._ask(key, wanted, forgotten, now_ms):
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
        """The answer must not keep those who wait from asking again."""
        most = self._settings.wait_max_ms
        for key in self._waiting:
            most = min(most, self._followed[key].not_before_ms - now_ms)
        return most

    def _must_wait(self, followed: _Followed, now_ms: int) -> bool:
        """A throttled replica that is behind its leader, while there is no room for it."""
        if self._throttle is None or not followed.lags or not self._is_throttled(followed):
            return False
        wait_s = self._throttle.wait_s()
        if not wait_s:
            return False
        followed.not_before_ms = now_ms + max(1, int(min(wait_s, MAX_PAUSE_S) * 1000))
        self._waiting[followed.key] = None
        return True

    def _is_throttled(self, followed: _Followed) -> bool:
        replicas = followed.log.config.follower_replication_throttled_replicas
        return self._throttle is not None and self._throttle.names(replicas, followed.key[1])

    def _ask(
        self,
        key: TopicPartitionKey,
        wanted: dict[str, FetchRequest.FetchTopic],
        forgotten: list[FetchRequest.ForgottenTopic],
        now_ms: int,
    ) -> bool:
        """False if the next request is to ask: the leader must forget first what it believes to have told."""
        name, index = key
        before = self._asked.get(key)
        followed = None if key in self._waiting or key in self._cut else self._followed.get(key)
        question = None if followed is None or self._must_wait(followed, now_ms) else followed.question
        missed = key in self._missed
        if question == before and not missed:
            return True
        if before is not None and (missed or question is None or question[0] != before[0]):
            forgotten.append(FetchRequest.ForgottenTopic(topic=name, topic_id=before[0], partitions=[index]))
            del self._asked[key]
            self._missed.discard(key)
            if missed and question is not None:
                return False
        if question is not None:
            topic_id, leader_epoch, offset, last_fetched_epoch, log_start_offset = self._asked[key] = question
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

    # -- being answered ----------------------------------------------------------------------------------------

    def failed(self, now_ms: int) -> None:
        """The question was not answered. The next one closes the session, if the leader still has it."""
        self._session_epoch = OPENS

    def complete(self, answer: FetchResponse, now_ms: int) -> Steps[list[TopicPartitionKey]]:
        """Append what was fetched. Returns the partitions whose fetch position is outside the leader's log:
        `found_range` them. Partitions may come and go between two steps."""
        if answer.error_code:
            self._refused(answer.error_code, now_ms)
            return []
        self._has_sessions = answer.session_id != NO_SESSION
        if not self._has_sessions:
            self._session_id, self._session_epoch = NO_SESSION, OPENS
        else:
            self._session_id = answer.session_id
            self._session_epoch = self._session_epoch % LAST_SESSION_EPOCH + 1
        outside: list[TopicPartitionKey] = []
        for topic in answer.responses:
            name = topic.topic or self._names.get(topic.topic_id, "")
            for data in topic.partitions:
                key = name, data.partition_index
                asked = self._asked.get(key)
                followed = None if key in self._waiting or key in self._cut else self._followed.get(key)
                if followed is None or asked is None or asked[PLACE] != followed.question[PLACE]:
                    # Since the question it has become another one's, or nobody's for now.
                    if asked is not None:
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
                    self._partition_refused(followed, data.error_code, now_ms)
                else:
                    yield from self._write(followed, data, now_ms)
                yield None
        return outside

    def _refused(self, code: int, now_ms: int) -> None:
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        self._session_epoch = OPENS
        if code not in SESSION_ERRORS:
            _log.warning("a leader refuses a follower's fetch: error %d", code)
            self._refused_until_ms = now_ms + self._settings.backoff_ms

    def _partition_refused(self, followed: _Followed, code: int, now_ms: int) -> None:
        name, index = followed.key
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            # There is a newer leader, of which the controller will tell.
            _log.debug(
                "%s-%d is not followed in epoch %d any more: there is a newer one", name, index, followed.leader_epoch
            )
            self.unfollow(followed.key)
            return
        # The leader may not have heard of itself yet, or has a failed disk, or is about to be another.
        level = logging.DEBUG if code in PASSING_ERRORS else logging.INFO
        _log.log(level, "%s-%d cannot be fetched now: error %d", name, index, code)
        self._wait(followed, now_ms)

    def _wait(self, followed: _Followed, now_ms: int) -> None:
        followed.not_before_ms = now_ms + min(followed.backoff_ms, self._settings.backoff_ms)
        followed.backoff_ms = min(followed.backoff_ms * 2, self._settings.backoff_ms)
        self._waiting[followed.key] = None
        self._changed[followed.key] = None

    def _write(
        self, followed: _Followed, data: FetchResponse.PartitionData, now_ms: int
    ) -> Generator[None, None, None]:
        """In steps of MAX_BATCHES: small ones are looked at for long."""
        diverging = data.diverging_epoch
        try:
            if diverging.epoch >= 0 or diverging.end_offset >= 0:
                truncate_to_epoch(followed.log, diverging.epoch, diverging.end_offset, now_ms)
                self._hold_if_truncated(followed)
            else:
                begun = False
                for records in runs_of_batches(memoryview(cast("memoryview", data.records or b"")), MAX_BATCHES):
                    if begun:
                        yield
                        if self._followed.get(followed.key) is not followed or not followed.is_current:
                            return
                    begun = True
                    followed.partition.append_as_follower(records, data.high_watermark, data.log_start_offset, now_ms)
                    followed.lags = followed.log.log_end_offset < data.high_watermark
                    if self._throttle is not None and len(records) and self._is_throttled(followed):
                        self._throttle.charge(len(records))
        except KafkaError as error:
            name, index = followed.key
            _log.error("%s-%d: the batches of its leader cannot be appended: %s", name, index, error)
            # A failed disk takes the partition from here soon; any other error may pass. The first of several batches
            # may have been written.
            followed.find_place()
            self._wait(followed, now_ms)
            return
        followed.backoff_ms = FIRST_BACKOFF_MS
        followed.find_place()
        self._changed[followed.key] = None

    def found_range(
        self, key: TopicPartitionKey, leader_epoch: int, start_offset: int, end_offset: int, now_ms: int
    ) -> None:
        """The leader's log reaches from `start_offset` to `end_offset`: go on in it.

        A shorter one than ours has lost records, in an unclean election: so does ours. One that begins behind our end
        has nothing that continues our log: it begins anew where the leader's does.
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
                _log.warning(
                    "%s-%d: truncated as a whole; it begins at offset %d, the log start offset of its leader",
                    name,
                    index,
                    start_offset,
                )
                log.truncate_fully_and_start_at(start_offset, now_ms)
            self._hold_if_truncated(followed)
        except KafkaError as error:
            _log.error("%s-%d: %s", name, index, error)
            followed.find_place()
            return
        followed.find_place()
        if followed.backoff_ms <= 2 * FIRST_BACKOFF_MS:  # who hears it again and again waits
            self._waiting.pop(key, None)
        self._changed[key] = None
