"""Targets of the transaction topic: keys and values of its records, the replay of its batches, and what follows it."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from random import Random
from typing import Any

from gregor.coordinator.ports import TimedOperation
from gregor.coordinator.replaying import replay
from gregor.coordinator.result import Record
from gregor.coordinator.txn.config import TransactionConfig
from gregor.coordinator.txn.partitions import NO_PARTITIONS
from gregor.coordinator.txn.records import decode_record, encoder, is_independent
from gregor.coordinator.txn.shard import TransactionShard
from gregor.coordinator.txn.states import IDLE, STATE_OF, TransactionState
from gregor.coordinator.txn.transaction import ProducerIdAndEpoch, Transaction
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.messages import EndTxnRequest, InitProducerIdRequest
from gregor.protocol.records.batch import CorruptBatch, build_batch
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import run_all
from tests.fuzz.group_targets import NoTimers
from tests.fuzz.record_targets import mend_batch
from tests.fuzz.runner import Seed, Target
from tests.protocol.message_values import random_message

MAX_IDS = 1000
NOW_MS = 1_700_000_000_000
KEY = b"\0\0\0\2id"
encode_record = encoder(lambda: 2)


def targets() -> list[Target]:
    return [
        Target("transaction keys", Transactions().replay_key, key_seeds, (MalformedMessage,), weight=8),
        Target("transaction values", Transactions().replay_value, value_seeds, (MalformedMessage,), weight=12),
        Target(
            "batches of transactions",
            Transactions().replay_batches,
            batch_seeds,
            (CorruptBatch,),
            weight=6,
            mend=mend_batch,
        ),
    ]


class _Context:
    """Carries out submitted operations at once."""

    leader_epoch = 1

    def __init__(self, owner: Transactions) -> None:
        self._owner = owner
        self.timers = NoTimers()

    def submit(self, operation: TimedOperation) -> None:
        self._owner.carry_out(operation(NOW_MS))

    def outcome_of(self, awaitable: Awaitable[Any]) -> Deferred[Any]:
        raise AssertionError("no timer fires")


class _Markers:
    def send(self, marker: EndTransaction, partitions: Collection[TopicPartition]) -> Deferred[None]:
        written: Deferred[None] = Deferred()
        written.complete(None)
        return written


async def _no_producer_id() -> int:
    raise AssertionError("no timer fires")


class Transactions:
    """A shard that is begun anew when it holds many transactional ids."""

    def __init__(self) -> None:
        self._shard: TransactionShard | None = None

    def shard(self) -> TransactionShard:
        if self._shard is None or len(self._shard.state.transactions) > MAX_IDS:
            context = _Context(self)
            self._shard = TransactionShard(TransactionConfig(), context, _Markers(), _no_producer_id, lambda: 2)
        return self._shard

    def carry_out(self, result: Any) -> None:
        for record in result.records:
            key, value = encode_record(record)
            assert decode_record(key, value) == record
            self.shard().replay(record, 0)
        if result.after_commit is not None:
            result.after_commit()

    def replay_key(self, value: bytes | None, key: bytes) -> None:
        self._replay(key, value)

    def replay_value(self, key: bytes, value: bytes) -> None:
        self._replay(key, value)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        """Check that a record that can be decoded is written again as it is, and that its id can be used after it."""
        record = decode_record(key, value)
        if record is None:
            return
        assert decode_record(*encode_record(record)) == record
        self.shard().replay(record, 17)
        if record.value is not None:
            self._use(record.key)

    def _use(self, name: str) -> None:
        """Check that a producer can end the last transaction and begin the next, for any content of the log."""
        shard = self.shard()
        shard.carry_out_decisions([name])
        transaction = shard.state.transactions[name]
        assert transaction.state in IDLE | {TransactionState.ONGOING}
        if transaction.state is TransactionState.ONGOING:
            request = EndTxnRequest(
                transactional_id=name,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                committed=True,
            )
            result = shard.endings.end(request, 2, 7, NOW_MS)
            assert result.response.error_code == ErrorCode.NONE
            self.carry_out(result)
            assert shard.state.state_of(name) is TransactionState.COMPLETE_COMMIT
        initialised = shard.producers.init(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1), 8, NOW_MS
        )
        self.carry_out(initialised)
        identity = ProducerIdAndEpoch(initialised.response.producer_id, initialised.response.producer_epoch)
        added = shard.producers.add(name, identity, [TopicPartition("t", 0)], 2, NOW_MS)
        assert added.response is ErrorCode.NONE
        self.carry_out(added)

    def replay_batches(self, context: None, data: bytes) -> None:
        shard = self.shard()
        offset = run_all(replay(shard, decode_record, is_independent, data, 0, "fuzz"))
        assert -(2**63) <= offset < 2**64
        run_all(shard.on_loaded(NOW_MS))
        assert all(
            transaction.state in IDLE or transaction.state is TransactionState.ONGOING
            for transaction in shard.state.transactions.values()
        )


def some_records() -> list[tuple[bytes, bytes | None]]:
    random = Random(4721)
    partitions = NO_PARTITIONS.union(
        {TopicPartition("orders", 0), TopicPartition("orders", 3), TopicPartition("ü" * 40, 1)}
    )
    made = []
    for state in STATE_OF.values():
        transaction = Transaction(1000, random.randrange(2**15), 60_000, state, NOW_MS, client_version=2)
        if state is not TransactionState.EMPTY:
            transaction = transaction._replace(start_ms=NOW_MS)
        if state not in IDLE:
            transaction = transaction._replace(partitions=partitions)
        made.append(encode_record(Record("id", transaction)))
        made.append(encoder(lambda: 0)(Record("id", transaction._replace(client_version=0))))
    made.append(encode_record(Record("id", None)))
    for version in range(2):
        value = random_message(random, "TransactionLogValue", version)
        value.transaction_status = random.randrange(len(STATE_OF))
        made.append((KEY, version.to_bytes(2) + value.encode(version)))
    return made


def key_seeds() -> list[Seed]:
    return [(value, key) for key, value in some_records()] + [(None, b"\0\1\0\2id")]


def value_seeds() -> list[Seed]:
    return [(key, value) for key, value in some_records() if value is not None]


def batch_seeds() -> list[Seed]:
    made = some_records()
    return [
        (None, bytes(build_batch(made[first : first + 4], timestamp_ms=NOW_MS))) for first in range(0, len(made), 4)
    ]
