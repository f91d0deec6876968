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

import struct
from collections.abc import Callable

from gregor.coordinator.result import Record
from gregor.coordinator.txn.partitions import PartitionSet
from gregor.coordinator.txn.states import STATE_OF, STATUS, TransactionState
from gregor.coordinator.txn.transaction import NO_PRODUCER_ID, Transaction
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import TransactionLogKey, TransactionLogValue

KEY_VERSION = 0
VALUE_VERSION = 0
TAGGED_VALUE_VERSION = 1

_VERSION = struct.Struct(">h")
_PREFIXES = [_VERSION.pack(version) for version in range(2)]


def encoder(transaction_version: Callable[[], int]) -> Callable[[Record], tuple[bytes, bytes | None]]:
    """Return the function that encodes a record: its key is a transactional id, its value a Transaction or None."""

    def encode(record: Record) -> tuple[bytes, bytes | None]:
        """Key and value as they are written. Raises ValueError for names too long for the format."""
        key = _PREFIXES[KEY_VERSION] + TransactionLogKey(transactional_id=record.key).encode(KEY_VERSION)
        transaction: Transaction | None = record.value
        if transaction is None:
            return key, None
        tagged = transaction_version() > 0 or _needs_tags(transaction)
        version = TAGGED_VALUE_VERSION if tagged else VALUE_VERSION
        return key, _PREFIXES[version] + _to_message(transaction, version).encode(version)

    return encode


def decode_record(key: bytes | None, value: bytes | None) -> Record | None:
    """The record, or None for one of a kind that does not exist yet. Raises MalformedMessage."""
    if key is None or len(key) < _VERSION.size:
        raise MalformedMessage("a record without the version of its key")
    (key_version,) = _VERSION.unpack_from(key)
    if key_version != KEY_VERSION:
        return None
    transactional_id = TransactionLogKey.decode(key, key_version, _VERSION.size)[0].transactional_id
    if value is None:
        return Record(transactional_id, None)
    if len(value) < _VERSION.size:
        raise MalformedMessage("a value without version")
    (value_version,) = _VERSION.unpack_from(value)
    if value_version < 0:
        raise MalformedMessage(f"a value of version {value_version}")
    # A version that is newer than we know can be read as the newest we know: since version 1 only tags are added.
    readable = min(value_version, TransactionLogValue.MAX_VERSION)
    message, _ = TransactionLogValue.decode(value, readable, _VERSION.size)
    return Record(transactional_id, _from_message(message))


def _needs_tags(transaction: Transaction) -> bool:
    return (
        transaction.client_version > 0
        or transaction.next_producer_id != NO_PRODUCER_ID
        or transaction.previous_producer_id != NO_PRODUCER_ID
    )


def _to_message(transaction: Transaction, version: int) -> TransactionLogValue:
    previous = transaction.previous_producer_id
    if previous == NO_PRODUCER_ID and version >= TAGGED_VALUE_VERSION:
        previous = transaction.producer_id
    partitions = None
    if transaction.state is not TransactionState.EMPTY:
        partitions = [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in transaction.partitions.by_topic()
        ]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=previous,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=STATUS[transaction.state],
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
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
