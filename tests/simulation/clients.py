"""Clients of the simulated cluster: producers that rely on their responses, and a consumer that reads everything again
to check it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DeleteRecordsRequest,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from gregor.protocol.records.batch import build_batch, iter_batches
from gregor.replication.channels.peer import Peer, PeerError
from tests.simulation.ledger import is_compacted, key_of
from tests.simulation.node import host_of, rack_of

if TYPE_CHECKING:
    from tests.simulation.world import World

Key = tuple[str, int]
TIMEOUT_MS = 1500
LATEST = -1
PRODUCE_VERSION = 12
PATIENCE = 200
"""Attempts with one batch while the cluster is calm."""


class Client:
    """A client that knows the leaders from the last responses, and sends its requests to them."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.leaders: dict[Key, tuple[int, int]] = {}
        """(broker, leader epoch) by partition. A leader of an older epoch is never used again."""
        self.topic_ids: dict[str, bytes] = {}
        self._peers: dict[int, Peer] = {}

    def peer(self, broker_id: int) -> Peer:
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = Peer(host_of(broker_id), 9092, "client", TIMEOUT_MS, LoopGate())
        return peer

    async def refresh(self) -> None:
        """Request the current leaders from a random broker."""
        broker_id = self.rng.choice(self.world.broker_ids)
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in self.world.topics]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        try:
            answer = await self.peer(broker_id).send(request, 12)
        except PeerError:
            await asyncio.sleep(0.1 * self.rng.random())
            return
        for topic in answer.topics:
            if topic.error_code == ErrorCode.NONE:
                self.topic_ids[topic.name] = topic.topic_id
                for one in topic.partitions:
                    key = topic.name, one.partition_index
                    known = self.leaders.get(key, (-1, -1))
                    if one.leader_epoch >= known[1] and one.leader_id >= 0:
                        self.leaders[key] = one.leader_id, one.leader_epoch

    async def leader(self, key: Key) -> tuple[int, int]:
        while (known := self.leaders.get(key)) is None:
            await self.refresh()
            await asyncio.sleep(0.05)
        return known

    async def pause(self) -> None:
        await asyncio.sleep(0.05 + 0.1 * self.rng.random())
        await self.refresh()


class Producer(Client):
    """Sends one batch after the other, acks=all, until `world.producing` ends; each until it is known to be written,
    or, where it is not idempotent, sometimes given up."""

    def __init__(self, world: World, rng: random.Random, name: str, idempotent: bool) -> None:
        super().__init__(world, rng)
        self.name = name
        self.idempotent = idempotent
        self.producer_id = -1
        self._sequences: dict[Key, int] = {}
        self._count = 0

    async def run(self) -> None:
        await self.get_id()
        while self.world.producing:
            await asyncio.sleep(self.world.produce_every_s * 2 * self.rng.random())
            await self._send(self.rng.choice(self.world.keys))

    async def get_id(self) -> None:
        while self.idempotent and self.producer_id < 0:
            try:
                answer = await self.peer(self.rng.choice(self.world.broker_ids)).send(
                    InitProducerIdRequest(transactional_id=None), 4
                )
            except PeerError:
                continue
            self.world.trace(f"{self.name} gets producer id {answer.producer_id}: {answer.error_code}")
            if answer.error_code == ErrorCode.NONE:
                self.producer_id = answer.producer_id
            else:
                await asyncio.sleep(0.1)

    def next_batch(self, key: Key) -> tuple[int, list[bytes], ProduceRequest]:
        """First sequence, values, and the request that writes them."""
        values = []
        for _ in range(self.rng.choice((1, 1, 1, 2, 5))):
            self._count += 1
            values.append(b"%s.%d" % (self.name.encode(), self._count))
        if is_compacted(key):
            values = [b"%s|k%d" % (value, self.rng.randrange(4)) for value in values]
        sequence = self._sequences.get(key, 0)
        batch = build_batch(
            [(key_of(value), value) for value in values],
            timestamp_ms=self.world.now_ms(),
            producer_id=self.producer_id,
            producer_epoch=0 if self.idempotent else -1,
            base_sequence=sequence if self.idempotent else -1,
        )
        self._sequences[key] = sequence + len(values)
        data = ProduceRequest.PartitionProduceData(index=key[1], records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=key[0], partition_data=[data])
        return sequence, values, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])

    async def _send(self, key: Key) -> None:
        _, values, request = self.next_batch(key)
        ledger = self.world.ledger
        attempt = 0  # since the cluster is whole, without a throttle
        while True:
            attempt += self.world.is_calm
            broker_id, _ = await self.leader(key)
            sent_s = asyncio.get_running_loop().time()
            try:
                answer = await self.peer(broker_id).send(request, PRODUCE_VERSION)
            except PeerError as error:
                code, answered = str(error), None
            else:
                answered = answer.responses[0].partition_responses[0]
                code = ErrorCode(answered.error_code).name
            self.world.trace(f"{self.name} {key[0]}-{key[1]} {values[0].decode()}x{len(values)} at {broker_id}: {code}")
            if answered is not None and answered.error_code == ErrorCode.NONE:
                ledger.acknowledged(key, answered.base_offset, values, self.name, sent_s)
                return
            if answered is not None and answered.error_code in FATAL:
                ledger.violation(f"{self.name}: {code} for {key}, though all before it was acknowledged")
                return
            if not self.idempotent and self.rng.random() < 0.2:
                return
            if attempt > PATIENCE:
                ledger.violation(
                    f"{self.name}: {values[0].decode()} for {key} is not appended though all is well: {code}"
                )
                return
            await self.pause()


FATAL = (
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
)


class Consumer(Client):
    """Reads one partition from its beginning, again and again."""

    isolation_level = 0

    def __init__(self, world: World, rng: random.Random, key: Key) -> None:
        super().__init__(world, rng)
        self.key = key
        self.position = 0
        self._latest = 0
        self._rack = rng.choice(("", *map(rack_of, world.broker_ids)))
        self._preferred: tuple[int, int] | None = None
        """The preferred read replica that the leader returned, and its leader epoch."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.1 * self.rng.random())
            broker_id, epoch = await self.leader(self.key)
            try:
                if self.rng.random() < 0.2:
                    await self._ask_latest(broker_id, epoch)
                if self._preferred is not None and (self._preferred[1] != epoch or self.rng.random() < 0.05):
                    self._preferred = None
                await self._fetch(broker_id if self._preferred is None else self._preferred[0], epoch)
            except PeerError:
                self._preferred = None
                await self.pause()
            if self.rng.random() < 0.02:
                self.position = self.world.ledger.deleted_below(self.key)  # records that were read are read again

    async def _ask_latest(self, broker_id: int, epoch: int) -> None:
        one = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=self.key[1], current_leader_epoch=epoch, timestamp=LATEST
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name=self.key[0], partitions=[one])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=self.isolation_level, topics=[topic])
        answer = await self.peer(broker_id).send(request, 7)
        told = answer.topics[0].partitions[0]
        if told.error_code == ErrorCode.NONE:
            self._note_latest(told.offset, broker_id)
        else:
            await self.pause()

    def _note_latest(self, offset: int, broker_id: int) -> None:
        if offset < self._latest:
            self.world.ledger.violation(
                f"latest offset of {self.key} goes back from {self._latest} to {offset} at broker {broker_id}"
            )
        self._latest = offset

    async def _fetch(self, broker_id: int, epoch: int) -> None:
        one = FetchRequest.FetchPartition(
            partition=self.key[1],
            current_leader_epoch=epoch,
            fetch_offset=self.position,
            partition_max_bytes=1 << 20,
        )
        topic_id = self.topic_ids[self.key[0]]
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self.isolation_level,
            session_epoch=-1,
            rack_id=self._rack,
            topics=[FetchRequest.FetchTopic(topic=self.key[0], topic_id=topic_id, partitions=[one])],
        )
        answer: FetchResponse = await self.peer(broker_id).send(request, 15)
        if answer.error_code or not answer.responses:
            await self.pause()
            return
        told = answer.responses[0].partitions[0]
        ledger = self.world.ledger
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self.position < ledger.deleted_below(self.key):
                self.position = ledger.deleted_below(self.key)
            elif self._preferred is None and epoch >= ledger.leader_epoch(self.key):
                # (A former leader that does not know its successor may lack what the successor already deleted.)
                ledger.violation(f"a consumer at {self.position} of {self.key} is out of range at broker {broker_id}")
        if told.error_code:
            self._preferred = None
            await self.pause()
            return
        if told.preferred_read_replica >= 0:
            self.world.ledger.sent_to(self.key, broker_id, told.preferred_read_replica, self._rack)
            self._preferred = told.preferred_read_replica, epoch
            return
        self._use(told)

    def _use(self, told: FetchResponse.PartitionData) -> None:
        ledger = self.world.ledger
        records: Any = told.records
        for batch in iter_batches(records or b""):
            for record in batch.records():
                if record.offset >= self.position:
                    ledger.read(self.key, record.offset, bytes(record.value or b""))
                    self.position = record.offset + 1
        if self.position > told.high_watermark >= 0 and records:
            ledger.violation(
                f"a consumer of {self.key} was given records above the high watermark {told.high_watermark}"
            )


class Deleter(Client):
    """Has the oldest records deleted now and then, never all of those that were promised."""

    async def run(self) -> None:
        while self.world.producing:
            await asyncio.sleep(1.0 + 2 * self.rng.random())
            key = self.rng.choice(self.world.keys)
            if is_compacted(key):
                continue
            broker_id, _ = await self.leader(key)
            offset = self.world.ledger.to_delete(key, self.rng.random())
            one = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=key[1], offset=offset)
            topic = DeleteRecordsRequest.DeleteRecordsTopic(name=key[0], partitions=[one])
            try:
                answer = await self.peer(broker_id).send(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
            except PeerError:
                await self.pause()
                continue
            told = answer.topics[0].partitions[0]
            code = ErrorCode(told.error_code)
            self.world.trace(f"{key[0]}-{key[1]} below {offset} at {broker_id}: {code.name}")
            if code == ErrorCode.NONE:
                self.world.ledger.deleted(key, offset, told.low_watermark)
            else:
                await self.pause()
