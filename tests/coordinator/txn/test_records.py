"""Keys and values of `__transaction_state` against bytes that were composed by hand from Kafka's definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.coordinator.result import Record
from gregor.coordinator.txn.partitions import NO_PARTITIONS
from gregor.coordinator.txn.records import decode_record, encoder
from gregor.coordinator.txn.states import STATUS, TransactionState
from gregor.coordinator.txn.transaction import Transaction
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import TransactionLogKey, TransactionLogValue
from gregor.protocol.topic_partition import TopicPartition

KEY = b"\x00\x00\x00\x02id"
FIXED = (  # of both versions, up to the partitions
    b"\x00\x00\x00\x00\x00\x00\x03\xe8"  # producer id 1000
    b"\x00\x05"  # producer epoch
    b"\x00\x00\xea\x60"  # timeout 60000 ms
)
TIMES = (
    b"\x00\x00\x01\x8b\xcf\xe5\x68\x00"  # last update 1700000000000
    b"\x00\x00\x01\x8b\xcf\xe5\x67\xff"  # start, 1 ms earlier
)
SAME_ID = b"\x00\x08\x00\x00\x00\x00\x00\x00\x03\xe8"  # tag 0: the producer id of the record before
CLIENT_2 = b"\x02\x02\x00\x02"  # tag 2: the transaction version of the client
NO_START = TIMES[:8] + b"\xff" * 8
OLD_PARTITIONS = (
    b"\x00\x00\x00\x02"
    b"\x00\x01a" b"\x00\x00\x00\x02" b"\x00\x00\x00\x00" b"\x00\x00\x00\x03"
    b"\x00\x02bc" b"\x00\x00\x00\x01" b"\x00\x00\x00\x01"
)  # fmt: skip
NEW_PARTITIONS = (
    b"\x03"
    b"\x02a" b"\x03" b"\x00\x00\x00\x00" b"\x00\x00\x00\x03" b"\x00"
    b"\x03bc" b"\x02" b"\x00\x00\x00\x01" b"\x00"
)  # fmt: skip

PARTITIONS = NO_PARTITIONS.union({TopicPartition("bc", 1), TopicPartition("a", 3), TopicPartition("a", 0)})
EMPTY = Transaction(1000, 5, 60_000, TransactionState.EMPTY, 1_700_000_000_000)
ONGOING = EMPTY._replace(state=TransactionState.ONGOING, start_ms=1_699_999_999_999, partitions=PARTITIONS)
COMMITTED = ONGOING._replace(state=TransactionState.COMPLETE_COMMIT, partitions=NO_PARTITIONS)
NEW_PROTOCOL = ONGOING._replace(client_version=2)
EXHAUSTED = NEW_PROTOCOL._replace(state=TransactionState.PREPARE_COMMIT, next_producer_id=2000)
ROTATED = COMMITTED._replace(client_version=2, previous_producer_id=999)


@pytest.mark.parametrize(
    ("transaction_version", "transaction", "value"),
    [
        (0, EMPTY, b"\x00\x00" + FIXED + b"\x00" + b"\xff\xff\xff\xff" + NO_START),
        (0, ONGOING, b"\x00\x00" + FIXED + b"\x01" + OLD_PARTITIONS + TIMES),
        (0, COMMITTED, b"\x00\x00" + FIXED + b"\x04" + b"\x00\x00\x00\x00" + TIMES),
        (1, EMPTY, b"\x00\x01" + FIXED + b"\x00" + b"\x00" + NO_START + b"\x01" + SAME_ID),
        (2, ONGOING, b"\x00\x01" + FIXED + b"\x01" + NEW_PARTITIONS + TIMES + b"\x01" + SAME_ID),
        (2, NEW_PROTOCOL, b"\x00\x01" + FIXED + b"\x01" + NEW_PARTITIONS + TIMES + b"\x02" + SAME_ID + CLIENT_2),
        (
            2,
            EXHAUSTED,
            b"\x00\x01" + FIXED + b"\x02" + NEW_PARTITIONS + TIMES
            + b"\x03" + SAME_ID + b"\x01\x08\x00\x00\x00\x00\x00\x00\x07\xd0" + CLIENT_2,
        ),
        (
            2,
            ROTATED,
            b"\x00\x01" + FIXED + b"\x04" + b"\x01" + TIMES
            + b"\x02" + b"\x00\x08\x00\x00\x00\x00\x00\x00\x03\xe7" + CLIENT_2,
        ),
        # A transaction of the new protocol that is still open after a downgrade would lose its next producer id.
        (0, NEW_PROTOCOL, b"\x00\x01" + FIXED + b"\x01" + NEW_PARTITIONS + TIMES + b"\x02" + SAME_ID + CLIENT_2),
    ],
)  # fmt: skip
def test_bytes_of_records(transaction_version: int, transaction: Transaction, value: bytes) -> None:
    record = Record("id", transaction)
    assert encoder(lambda: transaction_version)(record) == (KEY, value)
    assert decode_record(KEY, value) == record


@given(
    producer_ids=st.tuples(*[st.integers(-1, 2**63 - 1)] * 3),
    epoch=st.integers(-1, 2**15 - 1),
    state=st.sampled_from([state for state, number in STATUS.items() if number < 6]),
    times=st.tuples(*[st.integers(-1, 2**63 - 1)] * 2),
    partitions=st.frozensets(
        st.builds(TopicPartition, st.text(min_size=1, max_size=200), st.integers(0, 2**31 - 1)), max_size=40
    ),
    client_version=st.integers(0, 2),
)
def test_values_with_tags_are_those_of_the_codec(
    producer_ids: tuple[int, int, int],
    epoch: int,
    state: TransactionState,
    times: tuple[int, int],
    partitions: frozenset[TopicPartition],
    client_version: int,
) -> None:
    producer_id, previous, following = producer_ids
    as_set = NO_PARTITIONS.union(partitions)
    transaction = Transaction(*(producer_id, epoch, 60_000, state, *times, as_set, client_version, previous, following))
    grouped = as_set.by_topic()
    message = TransactionLogValue(
        producer_id=producer_id,
        previous_producer_id=producer_id if previous == -1 else previous,
        next_producer_id=following,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=STATUS[state],
        transaction_partitions=None
        if state is TransactionState.EMPTY
        else [TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in grouped],
        transaction_last_update_timestamp_ms=times[0],
        transaction_start_timestamp_ms=times[1],
        client_transaction_version=client_version,
    )
    record = Record("id", transaction)
    key, value = encoder(lambda: 1)(record)
    assert value == b"\x00\x01" + message.encode(1)
    decoded = decode_record(key, value)
    assert decoded is not None
    if previous == producer_id:
        record = Record("id", transaction._replace(previous_producer_id=-1))
    if state is TransactionState.EMPTY:
        record = Record("id", record.value._replace(partitions=NO_PARTITIONS))
    assert decoded == record


@pytest.mark.parametrize(
    "changed",
    [
        {0: b"\x00\x00"},  # another version
        {16: b"\x06"},  # no state of the log
        {16: b"\x7f"},
        {17: b"\x02"},  # a partition, for which there are no bytes
        {34: b"\x01"},  # a tag too few
        {35: b"\x01"},  # the next producer id instead of the one before
        {45: b"\x01"},
    ],
)
def test_an_unusual_value_at_rest_is_that_of_the_codec(changed: dict[int, bytes]) -> None:
    key, usual = encoder(lambda: 2)(Record("id", COMMITTED._replace(client_version=2)))
    assert usual is not None
    assert len(usual) == 49
    value = bytearray(usual)
    for position, data in changed.items():
        value[position : position + len(data)] = data
    try:
        message, _ = TransactionLogValue.decode(bytes(value), value[1], 2)
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            decode_record(key, bytes(value))
        return
    if message.transaction_status not in range(6):
        with pytest.raises(MalformedMessage, match="in state"):
            decode_record(key, bytes(value))
        return
    decoded = decode_record(key, bytes(value))
    assert decoded is not None
    found: Transaction = decoded.value
    assert (found.state, found.client_version) == (
        TransactionState.COMPLETE_COMMIT,
        message.client_transaction_version,
    )
    assert found.next_producer_id == message.next_producer_id


@given(st.text(max_size=300))
def test_keys_of_any_text(transactional_id: str) -> None:
    record = Record(transactional_id, None)
    key, _ = encoder(lambda: 2)(record)
    assert key == b"\x00\x00" + TransactionLogKey(transactional_id=transactional_id).encode(0)
    assert decode_record(key, None) == record
    assert decode_record(key + b"more", None) == record


@pytest.mark.parametrize("key", [b"\x00\x00", b"\x00\x00\x00", b"\x00\x00\x00\x03id", b"\x00\x00\x00\x02i\xff"])
def test_a_broken_key_is_refused(key: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(key, None)


def test_tombstone() -> None:
    record = Record("id", None)
    assert encoder(lambda: 2)(record) == (KEY, None)
    assert decode_record(KEY, None) == record


def test_states_have_the_numbers_of_kafka() -> None:
    assert {state.value: number for state, number in STATUS.items()} == {
        "Empty": 0,
        "Ongoing": 1,
        "PrepareCommit": 2,
        "PrepareAbort": 3,
        "CompleteCommit": 4,
        "CompleteAbort": 5,
        "Dead": 6,
        "PrepareEpochFence": 7,
    }


def test_a_newer_value_is_read_as_the_newest_that_is_known() -> None:
    unknown_tag = b"\x01\x63\x01\x07"
    value = b"\x00\x09" + FIXED + b"\x00" + b"\x00" + NO_START + unknown_tag
    assert decode_record(KEY, value) == Record("id", EMPTY)


def test_fields_that_are_not_used_here_are_read_over() -> None:
    """Tag 3 is the epoch that goes with the next producer id (KIP-939)."""
    value = b"\x00\x01" + FIXED + b"\x00" + b"\x00" + NO_START + b"\x01\x03\x02\x00\x07"
    assert decode_record(KEY, value) == Record("id", EMPTY)


def test_a_key_of_another_kind_is_skipped() -> None:
    assert decode_record(b"\x00\x01\x00\x02id", b"anything") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\x00", None),
        (b"\x00\x00\x00\x09id", None),
        (KEY, b"\x00"),
        (KEY, b"\xff\xff"),
        (KEY, b"\x00\x00" + FIXED),
        (KEY, b"\x00\x00" + FIXED + b"\x06" + b"\xff\xff\xff\xff" + NO_START),
        (KEY, b"\x00\x00" + FIXED + b"\x08" + b"\xff\xff\xff\xff" + NO_START),
    ],
    ids=["no key", "short key", "cut key", "short value", "negative version", "cut value", "dead", "unknown state"],
)
def test_broken_records_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(key, value)


def test_a_name_too_long_for_the_format_is_refused() -> None:
    with pytest.raises(ValueError):
        encoder(lambda: 0)(Record("x" * 40_000, None))
