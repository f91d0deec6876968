"""The records of `__transaction_state`, as bytes.

Key and value each begin with an int16, their version; the key's version also is the kind of the record:

====  ===================  ========================  ==================================================================
key   value                key fields                value fields, in both versions
====  ===================  ========================  ==================================================================
0     TransactionLogValue  transactional id string   producer id int64, producer epoch int16, timeout int32 (ms),
                                                     state int8, partitions ?array of (topic string, array of int32),
                                                     last update int64 (ms), start int64 (ms)
====  ===================  ========================  ==================================================================

Version 1 is flexible and adds tagged fields: 0 previous producer id int64 (that of the record before, mostly the same),
1 next producer id int64, 2 transaction version of the client int16. It is written from transaction version 1 on; before
that, only for transactions that need those fields. The partitions are null in state Empty alone. No value is a
tombstone. Kafka: TransactionLog and TransactionVersion.transactionLogValueVersion.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

from gregor.coordinator.result import Record
from gregor.coordinator.txn.partitions import NO_PARTITIONS, PartitionSet
from gregor.coordinator.txn.states import STATE_OF, STATUS, TransactionState
from gregor.coordinator.txn.transaction import NO_PRODUCER_ID, Transaction
from gregor.protocol.codec.primitives import write_string_length, write_uvarint
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import TransactionLogKey, TransactionLogValue

KEY_VERSION = 0
VALUE_VERSION = 0
TAGGED_VALUE_VERSION = 1

_VERSION = struct.Struct(">h")
# Version of the key, length of the transactional id.
_KEY_HEAD = struct.Struct(">hh")
# Of the value in version 1: its version, producer id, producer epoch, timeout, state; last update, start.
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
# Tag, size, field.
_INT64_TAG = struct.Struct(">BBq")
_INT16_TAG = struct.Struct(">BBh")
# _HEAD, the count of partitions plus one, _TIMES, the count of tags, _INT64_TAG, _INT16_TAG.
_AT_REST = struct.Struct(">hqhibBqqBBBqBBh")
_INT32 = struct.Struct(">i")
_NULL = b"\0"
_COUNTS = [bytes((count,)) for count in range(4)]
_PREFIXES = [_VERSION.pack(version) for version in range(2)]


def encoder(transaction_version: Callable[[], int]) -> Callable[[Record], tuple[bytes, bytes | None]]:
    """Return the function that encodes a record: its key is a transactional id, its value a Transaction or None."""

    def encode(record: Record) -> tuple[bytes, bytes | None]:
        """Key and value as they are written. Raises ValueError for names too long for the format."""
        key = _encoded_key(record.key)
        transaction: Transaction | None = record.value
        if transaction is None:
            return key, None
        if transaction_version() > 0 or _needs_tags(transaction):
            return key, _encoded_with_tags(transaction)
        return key, _PREFIXES[VALUE_VERSION] + _to_message(transaction).encode(VALUE_VERSION)

    return encode


@lru_cache(maxsize=4096)
def _encoded_key(transactional_id: str) -> bytes:
    return _PREFIXES[KEY_VERSION] + TransactionLogKey(transactional_id=transactional_id).encode(KEY_VERSION)


def _encoded_with_tags(transaction: Transaction) -> bytes:
    """Return the value of version 1. Each transaction has three: the codec of all messages needs five times as long,
    and tests compare the two."""
    partitions = _NULL if transaction.state is TransactionState.EMPTY else _encoded_partitions(transaction.partitions)
    head = _HEAD.pack(
        TAGGED_VALUE_VERSION,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        STATUS[transaction.state],
    )
    times = _TIMES.pack(transaction.update_ms, transaction.start_ms)
    previous, following, client_version = (
        transaction.previous_producer_id,
        transaction.next_producer_id,
        transaction.client_version,
    )
    if previous == NO_PRODUCER_ID:
        previous = transaction.producer_id
    tags = [] if previous == NO_PRODUCER_ID else [_INT64_TAG.pack(0, 8, previous)]
    if following != NO_PRODUCER_ID:
        tags.append(_INT64_TAG.pack(1, 8, following))
    if client_version:
        tags.append(_INT16_TAG.pack(2, 2, client_version))
    return b"".join((head, partitions, times, _COUNTS[len(tags)], *tags))


def _encoded_partitions(partitions: PartitionSet) -> bytes:
    out = bytearray()
    grouped = list(partitions.by_topic())
    write_uvarint(out, len(grouped) + 1)
    for topic, numbers in grouped:
        name = topic.encode()
        write_string_length(out, len(name) + 1)
        out += name
        write_uvarint(out, len(numbers) + 1)
        for number in numbers:
            out += _INT32.pack(number)
        out += _COUNTS[0]
    return bytes(out)


def is_independent(_key: bytes) -> bool:
    """Each transactional id is: its last record is its state."""
    return True


def decode_record(key: bytes | None, value: bytes | None) -> Record | None:
    """The record, or None for one of a kind that does not exist yet. Raises MalformedMessage."""
    if key is None or len(key) < _VERSION.size:
        raise MalformedMessage("a record without the version of its key")
    if not key.startswith(_PREFIXES[KEY_VERSION]):
        return None
    transactional_id = _decoded_id(key)
    if value is None:
        return Record(transactional_id, None)
    if len(value) == _AT_REST.size and (transaction := _decoded_at_rest(value)) is not None:
        return Record(transactional_id, transaction)
    if len(value) < _VERSION.size:
        raise MalformedMessage("a value without version")
    (value_version,) = _VERSION.unpack_from(value)
    if value_version < 0:
        raise MalformedMessage(f"a value of version {value_version}")
    # A version that is newer than we know can be read as the newest we know: since version 1 only tags are added.
    readable = min(value_version, TransactionLogValue.MAX_VERSION)
    message, _ = TransactionLogValue.decode(value, readable, _VERSION.size)
    return Record(transactional_id, _from_message(message))


def _decoded_id(key: bytes) -> str:
    """The transactional id of a key of version 0, as the codec decodes it."""
    if len(key) >= _KEY_HEAD.size and len(key) == _KEY_HEAD.size + _KEY_HEAD.unpack_from(key)[1]:
        try:
            return key[_KEY_HEAD.size :].decode()
        except UnicodeDecodeError:
            pass
    return TransactionLogKey.decode(key, KEY_VERSION, _VERSION.size)[0].transactional_id


def _decoded_at_rest(value: bytes) -> Transaction | None:
    """Return the transaction of a value of version 1 without partitions and with the usual tags, as most of a log are
    at a start; None for all others of that size."""
    (version, producer_id, epoch, timeout_ms, status, partitions, update_ms, start_ms, count, first_tag, first_bytes,
     previous, second_tag, second_bytes, client_version) = _AT_REST.unpack(value)  # fmt: skip
    state = STATE_OF.get(status)
    usual = (version, count, first_tag, first_bytes, second_tag, second_bytes) == (TAGGED_VALUE_VERSION, 2, 0, 8, 2, 2)
    if state is None or partitions > 1 or not usual:
        return None
    if previous == producer_id:
        previous = NO_PRODUCER_ID
    return Transaction(
        producer_id, epoch, timeout_ms, state, update_ms, start_ms, NO_PARTITIONS, client_version, previous
    )


def _needs_tags(transaction: Transaction) -> bool:
    return (
        transaction.client_version > 0
        or transaction.next_producer_id != NO_PRODUCER_ID
        or transaction.previous_producer_id != NO_PRODUCER_ID
    )


def _to_message(transaction: Transaction) -> TransactionLogValue:
    partitions = None
    if transaction.state is not TransactionState.EMPTY:
        partitions = [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in transaction.partitions.by_topic()
        ]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=STATUS[transaction.state],
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )


def _from_message(message: TransactionLogValue) -> Transaction:
    state = STATE_OF.get(message.transaction_status)
    if state is None:
        raise MalformedMessage(f"a transaction in state {message.transaction_status}")
    previous = message.previous_producer_id
    partitions = message.transaction_partitions if state is not TransactionState.EMPTY else None
    return Transaction(
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        timeout_ms=message.transaction_timeout_ms,
        state=state,
        update_ms=message.transaction_last_update_timestamp_ms,
        start_ms=message.transaction_start_timestamp_ms,
        partitions=PartitionSet.of((topic.topic, topic.partition_ids) for topic in partitions or ()),
        client_version=message.client_transaction_version,
        previous_producer_id=NO_PRODUCER_ID if previous == message.producer_id else previous,
        next_producer_id=message.next_producer_id,
    )
