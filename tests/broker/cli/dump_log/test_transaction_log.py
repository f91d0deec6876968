"""gregor.broker.cli.dump_log.transaction_log; that its lines are Apache Kafka's is shown by test_dump_log_kafka.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.broker.cli.dump_log.transaction_log import transaction_log_contents
from gregor.broker.cli.errors import CommandError
from gregor.protocol.messages import TransactionLogKey, TransactionLogValue
from gregor.protocol.records.batch import Record

KEY = b"\0\0" + TransactionLogKey(transactional_id="billing").encode(0)


def shown(value: bytes | None) -> tuple[Any, Any]:
    """Return key and value of a record, parsed."""
    key, payload = transaction_log_contents(Record(4, 0, KEY, value, []))
    assert key is not None and payload is not None
    return json.loads(key), json.loads(payload)


def state(version: int, **fields: Any) -> bytes:
    known = {
        **{"producer_id": 7, "producer_epoch": 3, "transaction_timeout_ms": 60_000, "transaction_status": 1},
        **{"transaction_last_update_timestamp_ms": 12, "transaction_start_timestamp_ms": 11, **fields},
    }
    return version.to_bytes(2) + TransactionLogValue(**known).encode(version)


def test_transaction() -> None:
    orders = TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[0, 3])
    key, value = shown(state(0, transaction_partitions=[orders]))
    assert key == {"type": "0", "data": {"transactionalId": "billing"}}
    assert list(value["data"].items()) == [
        ("producerId", 7),
        ("producerEpoch", 3),
        ("transactionTimeoutMs", 60_000),
        ("transactionStatus", 1),
        ("transactionPartitions", [{"topic": "orders", "partitionIds": [0, 3]}]),
        ("transactionLastUpdateTimestampMs", 12),
        ("transactionStartTimestampMs", 11),
    ]
    assert value["version"] == "0"


def test_tagged_fields_are_shown_unless_they_have_their_default() -> None:
    _, plain = shown(state(1, transaction_partitions=None))
    assert plain["data"]["transactionPartitions"] is None and len(plain["data"]) == 7
    _, value = shown(
        state(1, previous_producer_id=6, next_producer_id=8, next_producer_epoch=0, client_transaction_version=2)
    )
    assert list(value["data"])[:5] == [
        *("producerId", "previousProducerId", "nextProducerId", "producerEpoch", "nextProducerEpoch")
    ]
    assert list(value["data"])[-1] == "clientTransactionVersion"


def test_other_records_are_named() -> None:
    assert transaction_log_contents(Record(4, 0, KEY, None, []))[1] == "<DELETE>"
    unknown = ("Unknown record type 5 at offset 4, skipping.", None)
    assert transaction_log_contents(Record(4, 0, b"\0\5x", b"", [])) == unknown
    for value in (b"", b"\0\7", b"\0\0\1"):
        text, nothing = transaction_log_contents(Record(4, 0, KEY, value, []))
        assert (text or "").startswith("Error at offset 4, skipping. ") and nothing is None
    with pytest.raises(CommandError, match="--transaction-log-decoder is for __transaction_state only"):
        transaction_log_contents(Record(4, 0, None, b"", []))


@pytest.mark.slow
@settings(deadline=None)
@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=60)), st.booleans())
def test_any_record(key: bytes, value: bytes | None, known_key: bool) -> None:
    text, _ = transaction_log_contents(Record(0, 0, KEY if known_key else key, value, []))
    assert text
