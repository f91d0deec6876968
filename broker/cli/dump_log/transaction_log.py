"""Records of `__transaction_state` as JSON, in the form of Apache Kafka's DumpLogSegments with
--transaction-log-decoder.

A value of version 1 has tagged fields, which are shown where they differ from their default.
"""

from __future__ import annotations

from gregor.broker.cli.dump_log.coordinator_records import Decoded, Fields, coordinator_contents, version_of
from gregor.broker.cli.dump_log.records import Contents
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import TransactionLogKey, TransactionLogValue
from gregor.protocol.records.batch import Record

VERSION_BYTES = 2
NO_PRODUCER = -1


def transaction_log_contents(record: Record) -> Contents:
    """Return key and value of one record: a transactional id, and the state of its transaction."""
    return coordinator_contents(record, "--transaction-log-decoder", "__transaction_state", _decode)


def _decode(key: bytes, value: bytes | None) -> Decoded | None:
    kind = version_of(key)
    if not TransactionLogKey.MIN_VERSION <= kind <= TransactionLogKey.MAX_VERSION:
        return None
    decoded, _ = TransactionLogKey.decode(key, kind, VERSION_BYTES)
    fields = {"transactionalId": decoded.transactional_id}
    return Decoded(fields, None if value is None else _fields(value))


def _fields(value: bytes) -> Fields:
    version = version_of(value)
    if not TransactionLogValue.MIN_VERSION <= version <= TransactionLogValue.MAX_VERSION:
        raise MalformedMessage(f"a value of version {version}")
    state, _ = TransactionLogValue.decode(value, version, VERSION_BYTES)
    fields: Fields = {"producerId": state.producer_id}
    if state.previous_producer_id != NO_PRODUCER:
        fields["previousProducerId"] = state.previous_producer_id
    if state.next_producer_id != NO_PRODUCER:
        fields["nextProducerId"] = state.next_producer_id
    fields["producerEpoch"] = state.producer_epoch
    if state.next_producer_epoch != NO_PRODUCER:
        fields["nextProducerEpoch"] = state.next_producer_epoch
    fields["transactionTimeoutMs"] = state.transaction_timeout_ms
    fields["transactionStatus"] = state.transaction_status
    fields["transactionPartitions"] = (
        None
        if state.transaction_partitions is None
        else [{"topic": one.topic, "partitionIds": list(one.partition_ids)} for one in state.transaction_partitions]
    )
    fields["transactionLastUpdateTimestampMs"] = state.transaction_last_update_timestamp_ms
    fields["transactionStartTimestampMs"] = state.transaction_start_timestamp_ms
    if state.client_transaction_version:
        fields["clientTransactionVersion"] = state.client_transaction_version
    return fields
