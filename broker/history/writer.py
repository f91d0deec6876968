"""Writes the history of rebalances to `__gregor_rebalances`, off the path of joins and heartbeats.

A rebalance that has ended is only put into a queue. Later its record is made in turns of the gate and appended to the
partition of its group: here, if this broker leads that partition, else by a Produce request to its leader, gregor or
Apache Kafka. The leaders of this topic are not those of `__consumer_offsets`: to tie both together would need a
placement of its own and still fail at every change of leader, and a record that is one second late harms nothing.

All is bounded: the rate of each group (coordinator.history.storms), the queue of records that wait for a leader, and
each record. Records beyond that are dropped and counted; groups do not notice.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from gregor.broker.cluster.peer_queue import PeerQueues
from gregor.broker.log import logger
from gregor.coordinator.history.records import encode, tombstone_keys
from gregor.coordinator.history.storms import Storms
from gregor.coordinator.history.summary import Summaries
from gregor.coordinator.history.texts import line
from gregor.coordinator.partitioner import partition_of
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ProduceRequest, ProduceResponse
from gregor.protocol.records.batch import build_batch
from gregor.protocol.topic_names import REBALANCES_TOPIC
from gregor.protocol.turns import run_all

if TYPE_CHECKING:
    from gregor.broker.cluster.coordinator_log import CoordinatorLog
    from gregor.broker.history.topic_births import TopicBirths
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.coordinator.history.rebalance import Rebalance
    from gregor.protocol.messages import RebalanceValue
    from gregor.replication.channels.peer import Peer, PeerError
    from gregor.replication.partition.metadata_image import MetadataImage

DELAY_S = 1.0
"""From one write to the next. A rebalance that ends after a longer pause is written at once, so that a broker that is
killed loses little; those that end within it share a batch."""
RETRY_S = 2.0
FINISH_S = 3.0
RECORDS_PER_BATCH = 100
MAX_BATCH_BYTES = 64 * 1024
"""Of keys and values, unless one record alone is larger: far below the usual max.message.bytes."""
MAX_WAITING_BYTES = 16 * 1024 * 1024
MAX_DELETED_GROUPS = 10_000
LOGGED_EVERY_S = 30.0
MAX_AT_CLOSE = 500

WITH_TOPIC_NAMES = 12
"""Produce has topic ids instead of names from version 13 on."""
ADMIN_CLIENT_ID = "__admin_client"
"""Brokers accept records for internal topics from this client id alone (Kafka: AdminUtils)."""
ALL_IN_SYNC = -1

_UNFIT = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD})
"""A leader that refuses records so will do it each time, and those behind them would wait without end. INVALID_RECORD
is for a large batch in a topic that an operator has given a codec: a leader here cannot compress it on the way."""
_ADVANCED = _UNFIT | {ErrorCode.NONE}
"""After these the next records of a partition are sent at once."""

_Record = tuple[bytes, bytes | None]


class _Sent(NamedTuple):
    """The first records of a partition's queue, on their way to its leader."""

    partition: int
    records_count: int
    batch: bytearray


class RebalanceHistory:
    """Implements the coordinator's port RebalanceLog."""

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        log: CoordinatorLog,
        births: TopicBirths,
        background: Background,
        clock_ms: Callable[[], int],
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        self._config = config
        self._image = image
        self._log = log
        self._background = background
        self._clock_ms = clock_ms
        self._summaries = Summaries(config.broker_id, births)
        self._storms = Storms()
        self._deleted: dict[str, int] = {}
        self._due: deque[Rebalance] = deque()
        self._encoded: deque[tuple[str, _Record]] = deque()
        self._queues: dict[int, deque[_Record]] = {}
        self._waiting_bytes = 0
        self._in_flight: set[int] = set()
        self._peers: PeerQueues[_Sent] = PeerQueues(
            config, image, background, "rebalances", self._exchange, self._not_sent, ADMIN_CLIENT_ID, security
        )
        self._create_topic: Callable[[str], Awaitable[None]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._begun_s = -math.inf
        self._running = False
        self._idle = asyncio.Event()
        self._answered = asyncio.Event()
        self._closed = False
        self._logged_s = -math.inf
        self._dropped = 0

    def start(self, create_topic: Callable[[str], Awaitable[None]]) -> None:
        """Write from now on. `create_topic` creates a topic by its name and raises KafkaError."""
        self._create_topic = create_topic
        if self._storms or self._deleted:
            self._schedule_next()

    # --- the port

    def now_ms(self) -> int:
        """The wall clock."""
        return self._clock_ms()

    def record(self, rebalance: Rebalance) -> None:
        """Keep a rebalance that has ended."""
        self._storms.add(rebalance, self._clock_ms())
        self._schedule_next()

    def forget(self, group_id: str, epoch: int) -> None:
        """Remove the history of a group that was deleted in this epoch."""
        self._storms.forget(group_id)
        if group_id in self._deleted or len(self._deleted) < MAX_DELETED_GROUPS:
            # One of the same name may have been created and deleted since, in a lower epoch.
            self._deleted[group_id] = max(epoch, self._deleted.get(group_id, 0))
        self._schedule_next()

    # --- the work

    def _schedule_next(self) -> None:
        """Write at once, in the next turn of the loop, or DELAY_S after the last write."""
        self._schedule(max(0.0, self._begun_s + DELAY_S - asyncio.get_running_loop().time()))

    def _schedule(self, delay_s: float) -> None:
        if self._timer is None and not self._running and not self._closed and self._create_topic is not None:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._start_work)

    def _start_work(self) -> None:
        self._timer = None
        self._begin_work()
        self._background.spawn(self._work())

    def _begin_work(self) -> None:
        self._begun_s = asyncio.get_running_loop().time()
        self._running = True
        self._idle.clear()

    async def _work(self) -> None:
        delay_s = DELAY_S
        try:
            await self._encode_due()
            if not await self._topic_exists():
                delay_s = RETRY_S
            else:
                await self._send_all()
        finally:
            # Also after an exception, which is logged: what waits is not left to the next rebalance.
            self._running = False
            self._idle.set()
            # Records that are on their way are followed by the next ones, or repeated, after the answer.
            waiting = self._queues.keys() - self._in_flight
            if waiting:
                delay_s = RETRY_S
            if self._storms or self._deleted or self._encoded or waiting or self._due:
                self._schedule(delay_s)

    async def _encode_due(self) -> None:
        turns = self._background.gate.turns()
        while self._deleted:
            self._encode_deletion(*self._deleted.popitem())
            await turns.next()
        self._due.extend(self._storms.pop(self._clock_ms()))
        while self._due and not self._closed:
            rebalance = self._due.popleft()
            self._encode(rebalance.group_id, await self._background.gate.run(self._summaries.value_of(rebalance)))
            await turns.next()

    def _encode_deletion(self, group_id: str, epoch: int) -> None:
        self._summaries.forget(group_id)
        if self._image.partition_count(REBALANCES_TOPIC) or self._encoded:
            for key in tombstone_keys(group_id, epoch):
                self._put(group_id, (key, None))

    def _encode(self, group_id: str, value: RebalanceValue) -> None:
        logger.info("%s", line(group_id, value))
        try:
            self._put(group_id, encode(group_id, value))
        except ValueError as error:
            logger.info("Group %r: generation %d is not in the history: %s", group_id, value.epoch, error)

    def _put(self, group_id: str, record: _Record) -> None:
        size_bytes = _size(record)
        if self._waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            self._dropped += 1
            return
        self._waiting_bytes += size_bytes
        self._encoded.append((group_id, record))

    async def _topic_exists(self) -> bool:
        if self._image.partition_count(REBALANCES_TOPIC):
            return True
        if not self._encoded or self._create_topic is None:
            return False
        try:
            await self._create_topic(REBALANCES_TOPIC)
        except KafkaError as error:
            self._report(f"the topic cannot be created: {error}")
            return False
        return bool(self._image.partition_count(REBALANCES_TOPIC))

    def _distribute_one(self) -> bool:
        """Move the first record to the queue of its partition; return False if there is none, or no partition."""
        count = self._image.partition_count(REBALANCES_TOPIC)
        if not self._encoded or not count:
            return False
        group_id, record = self._encoded.popleft()
        self._queues.setdefault(partition_of(group_id, count), deque()).append(record)
        return True

    # --- to the leaders

    async def _send_all(self) -> None:
        """Distribute and send in turns: after a while without a leader many records may wait."""
        turns = self._background.gate.turns()
        while self._distribute_one():
            await turns.next()
        for partition in sorted(self._queues):
            await self._send(partition)

    async def _send(self, partition: int) -> None:
        turns = self._background.gate.turns()
        while not self._closed and self._send_one(partition):
            await turns.next()

    def _send_one(self, partition: int) -> bool:
        """Send the first records of a partition's queue. Return whether the next ones may follow at once; those behind
        records that are on their way may not."""
        queue = self._queues.get(partition)
        if queue is None or partition in self._in_flight:
            return False
        state = self._image.partition(REBALANCES_TOPIC, partition)
        if state is None:
            # The topic was deleted, and made anew with fewer partitions.
            self._drop(partition, len(queue))
            return False
        records = _first_records(queue)
        if state.leader == self._config.broker_id:
            return self._append(partition, records)
        batch = build_batch(records, timestamp_ms=int(time.time() * 1000))
        if self._peers.add(state.leader, _Sent(partition, len(records), batch)):
            self._in_flight.add(partition)
            self._answered.clear()
        else:
            self._report(f"the leader of partition {partition} is not known")
        return False

    def _append(self, partition: int, records: list[_Record]) -> bool:
        try:
            self._log.append(partition, records)
        except KafkaError as error:
            self._report(f"the records of partition {partition} cannot be appended: {error}")
            if error.code not in _UNFIT:
                return False
            self._drop(partition, len(records))
        else:
            self._written(partition, len(records))
        return True

    def _drop(self, partition: int, count: int) -> None:
        self._dropped += count
        self._written(partition, count)

    def _written(self, partition: int, count: int) -> None:
        queue = self._queues[partition]
        for _ in range(count):
            self._waiting_bytes -= _size(queue.popleft())
        if not queue:
            del self._queues[partition]

    async def _exchange(self, peer: Peer, items: list[_Sent]) -> None:
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=self._config["request.timeout.ms"],
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=REBALANCES_TOPIC,
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=one.partition, records=one.batch) for one in items
                    ],
                )
            ],
        )
        response: ProduceResponse = await peer.send(request, newest=WITH_TOPIC_NAMES)
        errors = {one.index: one.error_code for topic in response.responses for one in topic.partition_responses}
        for one in items:
            self._in_flight.discard(one.partition)
            code = errors.get(one.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code:
                self._report(f"the leader of partition {one.partition} answers {ErrorCode(code).name}")
            if code in _UNFIT:
                self._drop(one.partition, one.records_count)
            elif code:
                self._schedule(RETRY_S)
            else:
                self._written(one.partition, one.records_count)
        for one in items:
            if errors.get(one.partition) in _ADVANCED:
                await self._send(one.partition)
        self._note_answer()

    def _not_sent(self, items: list[_Sent], error: PeerError) -> None:
        self._in_flight.difference_update(one.partition for one in items)
        self._report(f"the leader of partition {items[0].partition} cannot be reached: {error}")
        self._schedule(RETRY_S)
        self._note_answer()

    def _note_answer(self) -> None:
        if not self._in_flight:
            self._answered.set()

    def _report(self, why: str) -> None:
        """Log once in a while why records wait, and how many were dropped."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s < LOGGED_EVERY_S:
            return
        self._logged_s = now_s
        dropped = self._dropped + self._storms.lost
        logger.info(
            "%s: the history of rebalances waits, groups do not: %s; records dropped so far: %d",
            REBALANCES_TOPIC,
            why,
            dropped,
        )

    # --- end

    async def finish(self) -> None:
        """Write the rebalances that have ended by now: the broker is about to stop. Not for longer than FINISH_S."""
        try:
            async with asyncio.timeout(FINISH_S):
                if self._running:
                    await self._idle.wait()
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                    self._begin_work()
                    await self._work()
                if self._in_flight:
                    await self._answered.wait()
        except TimeoutError:
            self._report("the broker stops")

    def close(self) -> None:
        """Append what can be appended here at once; the rest is lost, and is a gap in the history."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._peers.close()
        self._due.extend(self._storms.pop(self._clock_ms()))
        for rebalance in _first(self._due, MAX_AT_CLOSE):
            self._encode(rebalance.group_id, run_all(self._summaries.value_of(rebalance)))
        while self._distribute_one():
            pass
        for partition in sorted(self._queues):
            state = self._image.partition(REBALANCES_TOPIC, partition)
            if state is not None and state.leader == self._config.broker_id:
                while self._send_one(partition):
                    pass


def _size(record: _Record) -> int:
    key, value = record
    return len(key) + len(value or b"")


def _first_records(queue: Iterable[_Record]) -> list[_Record]:
    """Return the records of one batch, at least one."""
    records: list[_Record] = []
    size_bytes = 0
    for record in queue:
        size_bytes += _size(record)
        if records and (len(records) == RECORDS_PER_BATCH or size_bytes > MAX_BATCH_BYTES):
            break
        records.append(record)
    return records


def _first(items: Iterable[Rebalance], count: int) -> list[Rebalance]:
    return [item for _, item in zip(range(count), items, strict=False)]
