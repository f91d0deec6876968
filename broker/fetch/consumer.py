"""One fetch of a consumer, or of a follower that speaks an old version: the read, and the response.

The response to a consumer that has exceeded a quota is empty, whatever was read: the client fetches the same again when
the throttle time is over (KIP-219).
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from gregor.broker.authorization.model import Operation, ResourceType
from gregor.broker.fetch.follower_sessions import replica_of
from gregor.broker.fetch.reads import MAX_FETCHES, TOPIC_IDS_FROM, RepeatedRead, read_partition, refused_partition
from gregor.broker.fetch.session_cache import NO_SESSION
from gregor.broker.fetch.watched_partitions import high_watermark, last_stable_offset, log_end_offset
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import FetchRequest, FetchResponse
from gregor.replication.partition.offset_lookup import DEBUGGING, diverging_epoch
from gregor.replication.partition.replica_selector import preferred_read_replica
from gregor.storage.fs.cached_reads import NotCached
from gregor.storage.log.log import LogSlice

if TYPE_CHECKING:
    from gregor.broker.authorization.read_rights import ReadRights
    from gregor.broker.context import Call
    from gregor.broker.fetch.context import FetchPathContext
    from gregor.broker.fetch.sessions import FetchContext, FetchedPartition
    from gregor.broker.fetch.watched_partitions import UpperOffset
    from gregor.broker.quotas.quotas import ClientMeters
    from gregor.replication.partition.partition import Partition
    from gregor.storage.log.log import Log

RACKS_FROM = 11
STORAGE_ERROR_FROM = 6
ZSTD_FROM = 10
READ_COMMITTED = 1

MAX_RESPONSE_BYTES = 2**32
"""Above the size of any response: its records are limited by an int32, and its partitions by their request."""
RESPONSE_BYTES, PARTITION_BYTES = 32, 48
"""Approximate sizes of a response and of a partition in it, without records; the encoder alone knows the exact ones."""

_NOT_READ = frozenset(
    [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
"""Errors of partitions that Kafka leaves out of its read: a fetch waits for the records of the other ones."""

_BEFORE_THE_READ = _NOT_READ | {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
"""Errors beside which Kafka sends an empty list of aborted transactions; beside the others, which its read of the log
raises, it sends null. Either way clients ignore the list."""


_EXPECTED = frozenset(
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
)
"""Errors after which clients proceed; Kafka does not count them as failed requests."""


class FetchRead(RepeatedRead):
    """Read every partition of a fetch, decide whether the records suffice, and make the response."""

    __slots__ = (
        "_busy_ns",
        "_context",
        "_counted",
        "_follower",
        "_leader_only",
        "_max_bytes",
        "_max_not_read",
        "_meters",
        "_min_bytes",
        "_not_read",
        "_rack",
        "_racks",
        "_read_bytes",
        "_read_committed",
        "_requests",
        "_rights",
    )

    _broker: FetchPathContext

    def __init__(self, broker: FetchPathContext, request: FetchRequest, call: Call, context: FetchContext) -> None:
        super().__init__(broker, call)
        self._context = context
        self._max_bytes = min(request.max_bytes, broker.config["fetch.max.bytes"])
        self._follower = replica_of(request, call.version)
        self._counted = int(self._follower != DEBUGGING)
        """0 for a debugging tool: its reads are not those of consumers."""
        self._requests = self._counted
        """The number of requests as which a read counts: 0 after the first `collect`."""
        self._busy_ns = 0
        self._meters: ClientMeters | None = None
        """Those of the quotas at the beginning of the fetch, or at its end if it had to wait."""
        if broker.quotas is not None:
            self._find_quotas()
        meters = self._meters
        if meters is not None and meters.max_fetch_bytes < MAX_RESPONSE_BYTES:  # more would be throttled in any case
            rest_bytes = meters.max_fetch_bytes - RESPONSE_BYTES - PARTITION_BYTES * len(context.partitions)
            self._max_bytes = max(0, min(self._max_bytes, rest_bytes))
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._read_committed = request.isolation_level == READ_COMMITTED and self._follower < 0
        self._leader_only = call.version < RACKS_FROM or self._follower >= 0
        self._rack = request.rack_id if broker.sends_to_racks and not self._leader_only else ""
        self._racks: dict[int, str | None] = {}
        self._max_not_read = len(context.partitions) - 1
        """When more partitions have an error of _NOT_READ the fetch ends: all have one, or one that was read before."""
        self._read_bytes = self._not_read = 0
        """The size of the records of the last `collect`, and the number of partitions with an error of _NOT_READ."""
        self._rights: ReadRights | None = None
        """None: the client may read every topic."""

    @property
    def upper_offset(self) -> UpperOffset:
        """How far the fetch may read a log."""
        if self._read_committed:
            return last_stable_offset
        return high_watermark if self._follower < 0 else log_end_offset

    def partitions(self, begin: int = 0, end: int | None = None) -> list[Partition]:
        """Return the replicas whose changes can satisfy the request, of all its partitions or of some."""
        found = []
        for wanted in self._context.partitions if end is None else self._context.partitions[begin:end]:
            partition = self._broker.partition_of(wanted.topic, wanted.topic_id, wanted.index)
            if partition is not None:
                found.append(partition)
        return found

    def collect(self, begin: int = 0, end: int | None = None) -> None:
        """With `end`, read only the partitions from `begin` on; those before it were read."""
        quotas, authorizer, meters = self._broker.quotas, self._broker.authorizer, self._meters
        began_ns = 0
        if meters is not None and meters.time is not None and quotas is not None:
            began_ns = quotas.metering.began_ns or perf_counter_ns()
        if authorizer is not None and self._follower < 0:  # the rules may have changed since the read before
            self._rights = self._call.connection.known.rights_under(authorizer)
        partitions = self._context.partitions
        if end is not None:
            partitions = partitions[begin:end]
        if not begin:
            self.missing = []
            self.satisfied = not partitions
            self._read_bytes = self._not_read = 0
        total, not_read = self._read_bytes, self._not_read
        left = self._max_bytes - total
        for wanted in partitions:
            try:
                size, data = self._read(wanted, left, total == 0)
                total += size
                left -= size
            except NotCached as missing:
                self.missing.append(missing)
                continue
            except KafkaError as error:
                if error.code not in _EXPECTED:
                    self._count_failure(wanted)
                aborted: list[FetchResponse.AbortedTransaction] | None
                aborted = [] if error.code in _BEFORE_THE_READ else None
                data = refused_partition(wanted.index, self._known_to_client(error.code), aborted)
                if error.code in _NOT_READ:
                    not_read += 1
                else:
                    self.satisfied = True
            self._found.append((wanted, data))
        self._not_read = not_read
        if end is None or end >= len(self._context.partitions):
            if not_read > self._max_not_read:
                self.satisfied = True
            self._max_not_read = not_read
            self._requests = 0
        self._read_bytes = total
        if total >= self._min_bytes:
            self.satisfied = True
        if began_ns:
            self._busy_ns += perf_counter_ns() - began_ns

    def _check_right(self, wanted: FetchedPartition, rights: ReadRights) -> None:
        """Raise KafkaError if the client may not read the topic."""
        name: str | None = wanted.topic
        if self._call.version >= TOPIC_IDS_FROM:
            name = self._broker.metadata.topic_name(wanted.topic_id)
        authorizer = self._broker.authorizer
        if name is not None and authorizer is not None:  # the read refuses an unknown topic id
            if not authorizer.allows(self._call, Operation.READ, ResourceType.TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            rights.remember(wanted.topic or wanted.topic_id)
            wanted.allow(rights)

    def _read(self, wanted: FetchedPartition, left: int, first: bool) -> tuple[int, FetchResponse.PartitionData]:
        """Return the size of the records that a partition contributes, and its part of the response."""
        rights = self._rights
        if (
            rights is not None
            and wanted.rights is not rights
            and (wanted.topic or wanted.topic_id) not in rights.topics
        ):
            self._check_right(wanted, rights)
        partition = self._broker.partition_of(wanted.topic, wanted.topic_id, wanted.index)
        if partition is None:
            raise self._unknown(wanted.topic, wanted.topic_id, wanted.index)
        partition.traffic.fetch_requests += self._requests
        log = partition.log
        if self._call.version < ZSTD_FROM and log is not None and log.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        partition.check_epoch(wanted.current_leader_epoch)
        diverging = None
        if wanted.last_fetched_epoch >= 0:
            diverging = diverging_epoch(partition, wanted.last_fetched_epoch, wanted.fetch_offset)
        preferred = self._preferred(partition, wanted.fetch_offset) if self._rack else None
        if diverging is not None or preferred is not None:
            self.satisfied = True
            return 0, _without_records(wanted, log, diverging, preferred)
        # The first batch is sent whole even above every limit: a consumer must not get stuck on it.
        piece = partition.read(
            wanted.fetch_offset,
            min(wanted.max_bytes, left) if left > 0 or first else 0,
            current_leader_epoch=wanted.current_leader_epoch,
            replica_id=self._follower,
            min_one_batch=first,
            waits_for_disk=self._fetches >= MAX_FETCHES,
            leader_only=self._leader_only,
            read_committed=self._read_committed,
        )
        size = piece.size_bytes
        try:
            if size and not piece.active and not (self._read_committed and self._ends_at_stable_offset(log, piece)):
                # A read ends with its segment: the next one has more records, of which no later append notifies.
                self.satisfied = True
            aborted = None
            if self._read_committed:
                aborted = self._aborted_transactions(log, wanted.fetch_offset, piece)
            if self._follower >= 0:
                self._update_follower(wanted, partition)
        except (KafkaError, NotCached):
            piece.release()
            raise
        return size, read_partition(wanted.index, log, piece if size else b"", aborted)

    def _update_follower(self, wanted: FetchedPartition, partition: Partition) -> None:
        """Note the position of a follower; that of a diverging one does not show how much of this log it has."""
        broker = self._broker
        partition.leadership.update_follower(
            self._follower, wanted.fetch_offset, broker.now_ms(), log_start_offset=wanted.log_start_offset
        )
        broker.follower_sessions.propose_expansion(partition, self._follower)

    def _ends_at_stable_offset(self, log: Log | None, piece: LogSlice) -> bool:
        return log is not None and log.end_offset_of(piece, self._waits_for_disk) >= log.last_stable_offset

    def _aborted_transactions(
        self, log: Log | None, offset: int, piece: LogSlice
    ) -> list[FetchResponse.AbortedTransaction]:
        """Return the aborted transactions that have records in a piece, which was read from `offset` on; with some of
        those that begin shortly behind it, as Kafka does. The client drops their records."""
        if log is None or not piece.size_bytes:
            return []
        waits = self._waits_for_disk
        make = FetchResponse.AbortedTransaction
        return [
            make(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in log.aborted_transactions(offset, log.end_offset_of(piece, waits), waits)
        ]

    @property
    def _waits_for_disk(self) -> bool:
        return self._fetches >= MAX_FETCHES

    def _preferred(self, partition: Partition, offset: int) -> int | None:
        racks = self._racks
        if not racks:
            listener = self._call.connection.listener
            for node in self._broker.metadata.brokers.values():
                if listener in node.endpoints:
                    racks[node.id] = node.rack
        return preferred_read_replica(partition, offset, self._rack, racks)

    def _known_to_client(self, error: ErrorCode) -> ErrorCode:
        return error if self._call.version >= STORAGE_ERROR_FROM else without_storage_errors(error)

    def response(self, now_ms: int | None = None) -> FetchResponse:
        """`now_ms`: the present time, if the fetch has begun in this turn of the loop, so that its quotas are known."""
        if now_ms is None:
            now_ms = self._broker.now_ms()
            self._find_quotas()
        meters = self._meters
        if meters is not None:  # what was read is counted, about as it is encoded
            size_bytes = RESPONSE_BYTES + PARTITION_BYTES * len(self._found) + self._read_bytes
            throttle_ms = meters.fetched(size_bytes, self._busy_ns, now_ms)
            if throttle_ms:
                return self._throttled(throttle_ms)
        session = self._context.session
        topics: dict[tuple[str, Uuid], FetchResponse.FetchableTopicResponse] = {}
        leaders: list[int] = []
        for wanted, data in self._found:
            if not self._is_news(wanted, data):
                continue
            if isinstance(data.records, LogSlice):
                self._count(wanted, data.records)
            elif data.error_code:
                data = self._with_leader(wanted.topic, wanted.topic_id, data, leaders)
            key = (wanted.topic, wanted.topic_id)
            topic = topics.get(key)
            if topic is None:
                topic = FetchResponse.FetchableTopicResponse(
                    topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]
                )
                topics[key] = topic
            topic.partitions.append(data)
            if session is not None:
                wanted.last_sent_high_watermark = data.high_watermark
                wanted.last_sent_log_start_offset = data.log_start_offset
                if data.records:
                    session.served(wanted)
        self._found = []
        return self._answer(self._context.session_id, list(topics.values()), leaders)

    def _count(self, wanted: FetchedPartition, records: LogSlice) -> None:
        """Count the bytes that are sent."""
        partition = self._broker.partition_of(wanted.topic, wanted.topic_id, wanted.index)
        if partition is None:
            return  # deleted since the read
        if self._follower < 0:
            partition.traffic.bytes_out += records.size_bytes * self._counted
        else:
            partition.traffic.replication_bytes_out += records.size_bytes

    def _count_failure(self, wanted: FetchedPartition) -> None:
        partition = self._broker.partition_of(wanted.topic, wanted.topic_id, wanted.index)
        if partition is not None:
            partition.traffic.failed_fetch_requests += 1

    def _find_quotas(self) -> None:
        """Find the present quotas of a consumer. A follower has none."""
        quotas, connection = self._broker.quotas, self._call.connection
        self._meters = None
        if quotas is not None and self._follower < 0:
            self._meters = connection.known.meters_of(quotas, connection.principal.name, self._call.client_id)

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        """Throttle the connection, and return a response without records. A session that begins with this request does
        not begin: the client has no partition of it."""
        self.release()
        context = self._context
        session_id = context.session_id
        if not context.incremental:
            self._broker.fetch_sessions.cache.end(session_id)
            session_id = NO_SESSION
        self._call.connection.throttle(throttle_ms)
        return FetchResponse(session_id=session_id, throttle_time_ms=throttle_ms, responses=[])

    def _is_news(self, wanted: FetchedPartition, data: FetchResponse.PartitionData) -> bool:
        if not self._context.incremental:
            return True
        return bool(
            data.records
            or data.error_code
            or data.high_watermark != wanted.last_sent_high_watermark
            or data.log_start_offset != wanted.last_sent_log_start_offset
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )


def without_storage_errors(error: ErrorCode) -> ErrorCode:
    """Replace the error of a failed disk, which old clients do not know, by one that makes them refresh metadata."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error == ErrorCode.KAFKA_STORAGE_ERROR else error


def _without_records(
    wanted: FetchedPartition, log: Log | None, diverging: tuple[int, int] | None, preferred: int | None
) -> FetchResponse.PartitionData:
    """Return the answer from which a client learns that its log diverges from this one, with the epoch and the end
    offset to which it must truncate, or that it should read from the preferred replica."""
    data = read_partition(wanted.index, log, b"", None)
    if diverging is not None:
        epoch, end_offset = diverging
        data = data.replaced(diverging_epoch=FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset))
    return data if preferred is None else data.replaced(preferred_read_replica=preferred)
