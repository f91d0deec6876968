"""Transactional producers: instances of one transactional id after the other, some of which continue after the next has
begun; and read_committed consumers. Some transactions commit an offset of a group, too: their own number, so that the
group's offset names the last one that was committed.

With transaction version 2 each transaction has an epoch of its own. In the protocol before, a request that arrives late
may be mistaken for one of the next transaction; so there, as after any error, a client whose request to end a
transaction had no answer begins with a new epoch.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FetchResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from gregor.protocol.records.batch import build_batch, iter_batches
from gregor.replication.channels.peer import PeerError
from tests.simulation.clients import PATIENCE, Client, Consumer
from tests.simulation.ledger import is_compacted
from tests.simulation.transaction_ledger import is_abort

if TYPE_CHECKING:
    from tests.simulation.transaction_ledger import Transaction
    from tests.simulation.world import World

Key = tuple[str, int]
OF_GROUPS = 0
OF_TRANSACTIONS = 1
READ_COMMITTED = 1
EPOCH_PER_TRANSACTION = 2
TRANSACTION_TIMEOUT_MS = 3000
OVERDUE_S = 4.5
PRODUCE_BEFORE_KIP_890 = 11
PRODUCE = 12

RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
WITHOUT_EFFECT = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Of the errors that are retried, those after which a request to commit has certainly done nothing."""
NEVER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.CORRUPT_MESSAGE})
"""Errors for which a producer gives no cause that waits for each batch."""


class Refused(Exception):
    """A request of a transactional producer failed in a way that ends its transaction, and its epoch."""


class Instance(Client):
    """One incarnation of a transactional producer."""

    def __init__(self, world: World, rng: random.Random, name: str, generation: int) -> None:
        super().__init__(world, rng)
        self.name = name
        self.generation = generation
        self._producer = (-1, -1)
        self._sequences: dict[Key, int] = {}
        self._last_offsets: dict[Key, int] = {}
        """Of the acknowledged batches that these sequences count."""
        self._coordinators: dict[int, int] = {}
        """By type."""
        self._added: set[tuple[bytes, Key]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._adds_itself = world.transaction_version < EPOCH_PER_TRANSACTION
        self._values = 0

    # -- the coordinator -------------------------------------------------------------------------------------------

    async def _find_coordinator(self, kind: int) -> int | None:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[self.name])
        try:
            answer = await self.peer(self.rng.choice(self.world.broker_ids)).send(request, 4)
        except PeerError:
            return None
        (found,) = answer.coordinators
        return found.node_id if found.error_code == ErrorCode.NONE else None

    async def _coordinated(self, request: Any, version: int, what: str, kind: int = OF_TRANSACTIONS) -> Any:
        """Return the response of a coordinator, or None if there is none."""
        broker_id = self._coordinators.pop(kind, None)
        if broker_id is None:
            broker_id = await self._find_coordinator(kind)
        if broker_id is None:
            return None
        try:
            answer = await self.peer(broker_id).send(request, version)
        except PeerError as error:
            self._trace(f"{what} at {broker_id}: {error}")
            return None
        self._coordinators[kind] = broker_id
        return answer

    def _settled(self, code: ErrorCode, what: str, kind: int = OF_TRANSACTIONS) -> bool:
        """Return whether a request to a coordinator has succeeded; if not, it is to be repeated. Raises Refused."""
        self._trace(f"{what} at {self._coordinators.get(kind)}: {code.name}")
        if code == ErrorCode.NONE:
            return True
        if code != ErrorCode.CONCURRENT_TRANSACTIONS:
            self._coordinators.pop(kind, None)
        if code not in RETRIABLE:
            raise Refused(f"{what}: {code.name}")
        return False

    def _trace(self, text: str) -> None:
        producer_id, epoch = self._producer
        self.world.trace(f"{self.name}/{self.generation} ({producer_id}, {epoch}) {text}")

    async def _again(self, attempts: int, what: str) -> None:
        if attempts > PATIENCE:
            self.world.ledger.violation(f"{self.name}: {what} does not succeed though all is well")
            raise Refused(what)
        await self.pause()

    async def initialise(self) -> None:
        """Get an epoch, which fences all instances before. Raises Refused."""
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        attempts = 0
        while True:
            answer = await self._coordinated(request, 5, "InitProducerId")
            if answer is not None and self._settled(ErrorCode(answer.error_code), "InitProducerId"):
                self.adopt(answer.producer_id, answer.producer_epoch)
                self.world.transactions.initialised(self.name, self.generation)
                return
            attempts += self.world.is_calm
            await self._again(attempts, "InitProducerId")

    def adopt(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._producer = producer_id, epoch
            self._sequences.clear()
            self._last_offsets.clear()
            self._trace("has a new epoch")

    async def _add(self, one: Transaction, key: Key) -> None:
        if (one.name, key) in self._added:
            return
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=key[0], partitions=[key[1]])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[topic],
        )
        attempts = 0
        what = f"AddPartitionsToTxn {key[0]}-{key[1]}"
        while True:
            answer = await self._coordinated(request, 3, what)
            if answer is not None:
                result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
                if self._settled(ErrorCode(result.partition_error_code), what):
                    self._added.add((one.name, key))
                    return
            attempts += self.world.is_calm
            await self._again(attempts, what)

    def has_written(self, one: Transaction, key: Key) -> bool:
        """Return whether a batch of the transaction was acknowledged in this partition."""
        return any(of == key for of, _ in one.records)

    async def end(self, one: Transaction, *, commit: bool) -> None:
        """Commit or abort. Raises Refused, also where the outcome is not known."""
        transactions = self.world.transactions
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        what = f"EndTxn of {one.name.decode()}, {'commit' if commit else 'abort'}"
        attempts, is_in_doubt = 0, False
        if commit:
            transactions.commit_sent(one)
        while True:
            was_fenced = transactions.is_fenced(one)
            answer = await self._coordinated(request, 4 if self._adds_itself else 5, what)
            code = None if answer is None else ErrorCode(answer.error_code)
            if code is not None and code not in RETRIABLE and code is not ErrorCode.NONE:
                if commit and not is_in_doubt:
                    transactions.aborted(one, f"its only commit was refused: {code.name}")
            elif code is not ErrorCode.NONE and code not in WITHOUT_EFFECT:
                is_in_doubt = True
            if code is not None and self._settled(code, what):
                if commit and was_fenced:
                    self.world.ledger.violation(f"{self.name}: {what} succeeds though its producer was fenced before")
                elif commit:
                    transactions.committed(one, "the commit was acknowledged")
                else:
                    transactions.aborted(one, "the abort was acknowledged")
                if not self._adds_itself:
                    self.adopt(answer.producer_id, answer.producer_epoch)
                return
            if is_in_doubt and self._adds_itself:
                raise Refused(f"{what}: no answer")
            attempts += self.world.is_calm
            await self._again(attempts, what)

    # -- offsets of a group ----------------------------------------------------------------------------------------

    async def commit_offset(self, one: Transaction) -> None:
        """Commit the number of the transaction as an offset of the producer's group. Raises Refused."""
        producer_id, epoch = self._producer
        if self._adds_itself:
            await self._add_group()
        (topic, index) = self.world.keys[0]
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=one.number, committed_leader_epoch=-1, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=-1,
            member_id="",
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        what, attempts = f"TxnOffsetCommit {one.number}", 0
        while True:
            answer = await self._coordinated(request, 3 if self._adds_itself else 5, what, OF_GROUPS)
            if answer is not None:
                code = ErrorCode(answer.topics[0].partitions[0].error_code)
                if self._settled(code, what, OF_GROUPS):
                    one.has_offset = True
                    return
            elif self._adds_itself:
                raise Refused(f"{what}: no answer")
            attempts += self.world.is_calm
            await self._again(attempts, what)

    async def _add_group(self) -> None:
        producer_id, epoch = self._producer
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, group_id=self.name
        )
        attempts = 0
        while True:
            answer = await self._coordinated(request, 3, "AddOffsetsToTxn")
            if answer is not None and self._settled(ErrorCode(answer.error_code), "AddOffsetsToTxn"):
                return
            attempts += self.world.is_calm
            await self._again(attempts, "AddOffsetsToTxn")

    async def fetch_offset(self) -> int | None:
        """Return the stable offset of the group, -1 if it has none; None if there is no answer."""
        (topic, index) = self.world.keys[0]
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self.name,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[index])],
        )
        request = OffsetFetchRequest(groups=[wanted], require_stable=True)
        answer = await self._coordinated(request, 8, "OffsetFetch", OF_GROUPS)
        if answer is None:
            return None
        (group,) = answer.groups
        if not self._settled(ErrorCode(group.error_code), "OffsetFetch", OF_GROUPS):
            return None
        one = group.topics[0].partitions[0]
        if not self._settled(ErrorCode(one.error_code), f"OffsetFetch {one.committed_offset}", OF_GROUPS):
            return None
        return int(one.committed_offset)

    # -- records ---------------------------------------------------------------------------------------------------

    async def write(self, one: Transaction, key: Key) -> None:
        """Append one batch as a part of the transaction. Raises Refused."""
        request, values, what = await self._next_batch(one, key)
        attempts = 0
        while not await self._append(one, key, values, request, what):
            attempts += self.world.is_calm
            await self._again(attempts, what)

    async def write_late(self, one: Transaction, key: Key) -> None:
        """Have one batch held up on its way, and give up meanwhile: the transaction must be aborted. Raises Refused."""
        request, values, what = await self._next_batch(one, key)

        async def send() -> None:
            delay_s = self.rng.choice((0.2, 2.0)) * self.rng.random()
            await asyncio.sleep(0 if self.world.faults.catches_verifications else delay_s)
            other = Instance(self.world, self.rng, self.name, self.generation)  # with connections of its own
            other.adopt(*producer)
            with suppress(Refused):
                await other._append(one, key, values, request, f"late: {what}")

        producer = self._producer
        task = asyncio.get_running_loop().create_task(send())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _next_batch(self, one: Transaction, key: Key) -> tuple[ProduceRequest, list[bytes], str]:
        if self._adds_itself:
            await self._add(one, key)
        values = []
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            self._values += 1
            values.append(b"%s.%d" % (one.name, self._values))
        sequence = self._sequences.get(key, 0)
        batch = build_batch(
            [(None, value) for value in values],
            timestamp_ms=self.world.now_ms(),
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        data = ProduceRequest.PartitionProduceData(index=key[1], records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=key[0], partition_data=[data])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=1000, topic_data=[topic])
        self._sequences[key] = sequence + len(values)
        return request, values, f"{key[0]}-{key[1]} {values[0].decode()}x{len(values)}, sequence {sequence}"

    async def _append(self, one: Transaction, key: Key, values: list[bytes], request: Any, what: str) -> bool:
        broker_id, _ = await self.leader(key)
        was_fenced = self.world.transactions.is_fenced(one)
        sent_s = asyncio.get_running_loop().time()
        try:
            answer = await self.peer(broker_id).send(request, PRODUCE_BEFORE_KIP_890 if self._adds_itself else PRODUCE)
        except PeerError as error:
            self._trace(f"{what} at {broker_id}: {error}")
            return False
        answered = answer.responses[0].partition_responses[0]
        code = ErrorCode(answered.error_code)
        self._trace(f"{what} at {broker_id}: {code.name}")
        if code == ErrorCode.NONE:
            if was_fenced:
                self.world.ledger.violation(f"{self.name}: {what} is appended though its producer was fenced before")
            self.world.ledger.acknowledged(key, answered.base_offset, values, self.name, sent_s)
            self.world.transactions.acknowledged(one, key, answered.base_offset, values)
            self._last_offsets[key] = answered.base_offset + len(values) - 1
            return True
        if code in RETRIABLE:
            return False
        if code in NEVER and not what.startswith("late") and not self._is_forgotten(key):
            self.world.ledger.violation(f"{self.name}: {code.name} for {what}, though all before it was acknowledged")
        raise Refused(f"{what}: {code.name}")

    def _is_forgotten(self, key: Key) -> bool:
        """Whether a replica may lack the state of the producer: its last batch was deleted. With the newest protocol
        only the sequence 0 begins a new state (Kafka's ProducerAppendInfo)."""
        return key in self._last_offsets and self._last_offsets[key] < self.world.ledger.deleted_below(key)


class TransactionalProducer:
    """Runs one transaction after the other, until `world.producing` ends, and then a last one that must succeed. Some
    leave another one open behind it, which only its timeout ends."""

    def __init__(self, world: World, rng: random.Random, name: str) -> None:
        self._world = world
        self._rng = rng
        self._name = name
        self._keys = [key for key in world.keys if not is_compacted(key)]
        self._generation = self._number = 0
        self._instance: Instance | None = None
        self._zombies: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        world = self._world
        while world.producing:
            await asyncio.sleep(world.produce_every_s * self._rng.random())
            await self._transaction()
        await world.calm.wait()
        for _ in range(PATIENCE):
            if await self._transaction(is_last=True):
                await self._check_offset()
                if self._rng.random() < 0.3:
                    await self._leave_open()
                return
        world.ledger.violation(f"{self._name}: no transaction succeeds though all is well")

    async def _transaction(self, *, is_last: bool = False) -> bool:
        """Return whether it was committed."""
        rng, world = self._rng, self._world
        try:
            instance = self._instance or await self._new_instance()
            self._number += 1
            one = world.transactions.begin(self._name, instance.generation, self._number)
            for _ in range(rng.choice((1, 2, 3, 4))):
                await instance.write(one, rng.choice(self._keys))
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random())
            if rng.random() < 0.5:
                await instance.commit_offset(one)
            catches = world.faults.catches_verifications
            if not is_last and rng.random() < (0.5 if catches else 0.15):
                fresh = [key for key in self._keys if not instance.has_written(one, key)]
                await instance.write_late(one, rng.choice(fresh if catches and fresh else self._keys))
                if catches:
                    await asyncio.sleep(0.05 + 0.1 * rng.random())  # the batch comes over connections of its own
                await instance.end(one, commit=False)
                raise Refused("a request had no answer")
            end = 0.0 if is_last else rng.random()
            if end < 0.7:
                await instance.end(one, commit=end < 0.55)
                return end < 0.55
            if end < 0.85:
                self._continue(instance, one)
            elif end < 0.93:
                await asyncio.sleep(OVERDUE_S * rng.random())
                await instance.end(one, commit=True)
                return True
            self._instance = None  # as if its process had crashed
        except Refused as error:
            world.trace(f"{self._name} begins anew: {error}")
            self._instance = None
        return False

    async def _check_offset(self) -> None:
        """Check the offset of the group once all transactions of this producer are decided."""
        assert self._instance is not None
        for _ in range(PATIENCE):
            offset = await self._instance.fetch_offset()
            if offset is not None:
                self._world.transactions.offset_fetched(self._name, offset)
                self._world.transactions.last_offset_fetched(self._name, offset)
                return
            await self._instance.pause()
        self._world.ledger.violation(f"{self._name}: the offset of its group is not answered though all is well")

    async def _leave_open(self) -> None:
        instance = self._instance
        assert instance is not None
        one = self._world.transactions.begin(self._name, instance.generation, self._number + 1)
        with suppress(Refused):
            await instance.write(one, self._rng.choice(self._keys))

    async def _new_instance(self) -> Instance:
        self._generation += 1
        instance = Instance(self._world, self._rng, self._name, self._generation)
        await instance.initialise()
        if (offset := await instance.fetch_offset()) is not None:
            self._world.transactions.offset_fetched(self._name, offset)
        self._instance = instance
        return instance

    def _continue(self, instance: Instance, one: Transaction) -> None:
        """Let an instance continue beside the next."""
        task = asyncio.get_running_loop().create_task(self._zombie(instance, one))
        self._zombies.add(task)
        task.add_done_callback(self._zombies.discard)

    async def _zombie(self, instance: Instance, one: Transaction) -> None:
        rng = self._rng
        try:
            await asyncio.sleep(rng.choice((0.1, 1.0, 3.0)) * rng.random())
            if rng.random() < 0.7:
                await instance.write(one, rng.choice(self._keys))
            if rng.random() < 0.5:
                await instance.commit_offset(one)
            await instance.end(one, commit=True)
            self._number += 1
            more = self._world.transactions.begin(self._name, instance.generation, self._number)
            await instance.write(more, rng.choice(self._keys))
            await instance.end(more, commit=True)
        except Refused as error:
            self._world.trace(f"a former instance of {self._name} ends: {error}")


class CommittedConsumer(Consumer):
    """Reads with the isolation level read_committed, and leaves out what the list of aborted transactions names, as
    clients do it."""

    isolation_level = READ_COMMITTED

    def __init__(self, world: World, rng: random.Random, key: Key) -> None:
        super().__init__(world, rng, key)
        self._all: dict[int, bytes] = {}

    async def read_all(self, start: int, end: int) -> dict[int, bytes]:
        """Return all values by offset."""
        self.position = start
        self._all.clear()
        while self.position < end:
            broker_id, epoch = await self.leader(self.key)
            try:
                await self._fetch(broker_id if self._preferred is None else self._preferred[0], epoch)
            except PeerError:
                self._preferred = None
                await self.pause()
        return {offset: value for offset, value in self._all.items() if offset >= start}

    def _note_latest(self, offset: int, broker_id: int) -> None:
        self.world.transactions.latest_stable(self.key, offset, broker_id)

    def _use(self, told: FetchResponse.PartitionData) -> None:
        ledger = self.world.ledger
        to_come = sorted((one.first_offset, one.producer_id) for one in told.aborted_transactions or ())
        aborted: set[int] = set()
        records: Any = told.records
        for batch in iter_batches(records or b""):
            while to_come and to_come[0][0] <= batch.last_offset:
                aborted.add(to_come.pop(0)[1])
            if batch.is_control:
                if is_abort(batch):
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                self._use_records(batch)
            self.position = max(self.position, batch.last_offset + 1)
        if self.position > told.last_stable_offset >= 0 and records:
            ledger.violation(
                f"a consumer of {self.key} was given records above the last stable offset {told.last_stable_offset}"
            )

    def _use_records(self, batch: Any) -> None:
        for record in batch.records():
            if record.offset >= self.position:
                value = bytes(record.value or b"")
                self.world.ledger.read(self.key, record.offset, value)
                self.world.transactions.read(self.key, record.offset, value)
                self._all[record.offset] = value
