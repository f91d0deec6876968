"""gregor.broker.cluster.coordinator_log: the offsets topic as the coordinator's log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gregor.broker.cluster.coordinator_log import CoordinatorLog
from gregor.coordinator.result import Producer
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FindCoordinatorRequest
from gregor.protocol.records.batch import iter_batches
from gregor.protocol.records.control import EndTransaction
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from gregor.storage.log.log import Log
from tests.broker.harness import Harness, running


@pytest.fixture
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A broker of its own for each test: here the topic is written past the coordinator."""
    with running(tmp_path_factory.mktemp("node")) as harness:
        harness.ask(FindCoordinatorRequest(key="g"), 0)
        yield harness


@pytest.fixture
def coordinator_log(harness: Harness) -> CoordinatorLog:
    return CoordinatorLog(GROUP_METADATA_TOPIC, harness.broker.replicas, harness.broker.background)


def log_of(harness: Harness) -> Log:
    log = harness.broker.logs.get(GROUP_METADATA_TOPIC, 0)
    assert log is not None
    return log


def pairs(
    harness: Harness, coordinator_log: CoordinatorLog, offset: int, max_bytes: int = 1 << 20
) -> list[tuple[int, bytes | None]]:
    data = harness.run(coordinator_log.read(0, offset, max_bytes))
    return [(record.offset, record.value) for batch in iter_batches(data) for record in batch.records()]


def test_what_is_appended_can_be_read(harness: Harness, coordinator_log: CoordinatorLog) -> None:
    assert coordinator_log.bounds(0) == (0, 0)
    assert coordinator_log.append(0, [(b"k", b"one"), (b"k", None)]) == 2
    assert coordinator_log.append(0, [(b"k", b"three")]) == 3
    assert coordinator_log.bounds(0) == (0, 3)
    assert pairs(harness, coordinator_log, 0) == [(0, b"one"), (1, None), (2, b"three")]
    assert pairs(harness, coordinator_log, 1) == [(0, b"one"), (1, None), (2, b"three")]
    assert pairs(harness, coordinator_log, 2) == [(2, b"three")]
    assert pairs(harness, coordinator_log, 3) == []


def test_batches_come_whole(harness: Harness, coordinator_log: CoordinatorLog) -> None:
    for number in range(4):
        coordinator_log.append(0, [(b"k", bytes(1000) + bytes([number]))])
    size = log_of(harness).size_bytes // 4
    for max_bytes, count in ((1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (10 * size, 4)):
        assert len(pairs(harness, coordinator_log, 0, max_bytes)) == count
    # Nothing is held once it is read: the file could be closed.
    file = log_of(harness).segments[0].log
    assert not file.held  # type: ignore[attr-defined]


def test_segments_are_read_one_after_the_other(harness: Harness, coordinator_log: CoordinatorLog) -> None:
    harness.alter_topic(GROUP_METADATA_TOPIC, internal_segment_bytes="1500")
    for number in range(3):
        coordinator_log.append(0, [(b"k", bytes(1000) + bytes([number]))])
    assert log_of(harness).segments_count == 3
    found: list[int] = []
    while len(found) < 3:
        found += [offset for offset, _ in pairs(harness, coordinator_log, len(found))]
    assert found == [0, 1, 2]


def test_commits(harness: Harness, coordinator_log: CoordinatorLog) -> None:
    told: list[ErrorCode] = []
    end = coordinator_log.append(0, [(b"k", b"v")])
    assert coordinator_log.is_committed(0, end)
    coordinator_log.when_committed(0, end, told.append)
    assert told == [ErrorCode.NONE]
    harness.add_follower(GROUP_METADATA_TOPIC)
    assert coordinator_log.is_committed(0, end)
    end = coordinator_log.append(0, [(b"k", b"v")])
    assert not coordinator_log.is_committed(0, end)
    coordinator_log.when_committed(0, end, told.append)
    assert told == [ErrorCode.NONE]
    harness.loop.call_soon(harness.hand_over, GROUP_METADATA_TOPIC)
    harness.turn()
    assert not coordinator_log.is_committed(0, 0)
    assert told == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("partition", [0, 99])
def test_what_is_not_led_here_is_refused(harness: Harness, coordinator_log: CoordinatorLog, partition: int) -> None:
    harness.loop.call_soon(harness.hand_over, GROUP_METADATA_TOPIC)
    harness.turn()
    before = log_of(harness).log_end_offset
    assert not coordinator_log.is_committed(partition, 0)
    for call in (
        lambda: coordinator_log.append(partition, [(b"k", b"v")]),
        lambda: coordinator_log.bounds(partition),
        lambda: coordinator_log.when_committed(partition, 1, lambda error: None),
        lambda: harness.run(coordinator_log.read(partition, 0, 100)),
    ):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log_of(harness).log_end_offset == before


def test_settings_of_the_topic_do_not_keep_the_coordinator_from_writing(
    harness: Harness, coordinator_log: CoordinatorLog
) -> None:
    with pytest.raises(KafkaError) as caught:
        coordinator_log.append(0, [(b"k", bytes(2_000_000))])
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    harness.alter_topic(GROUP_METADATA_TOPIC, max_message_bytes="3000000")
    assert coordinator_log.append(0, [(b"k", bytes(2_000_000))]) == 1


# --- transactions

PRODUCER_ID, EPOCH = 7000, 3


def marker(commit: bool = True, *, epoch: int = EPOCH, coordinator_epoch: int = 0) -> EndTransaction:
    return EndTransaction(PRODUCER_ID, epoch, coordinator_epoch, commit, 0)


def is_open(harness: Harness) -> bool:
    """Whether the producer's transaction is open in the log, so that it needs no verification."""
    replica = harness.broker.replicas.get(GROUP_METADATA_TOPIC, 0)
    assert replica is not None
    return replica.begin_verification(PRODUCER_ID, EPOCH, -1, False) is None


def test_records_of_a_producer_begin_a_transaction_that_the_marker_ends(
    harness: Harness, coordinator_log: CoordinatorLog
) -> None:
    log = log_of(harness)
    producer = Producer(PRODUCER_ID, EPOCH)
    assert coordinator_log.append(0, [(b"k", b"one"), (b"k", b"two")], producer) == 2
    assert coordinator_log.append(0, [(b"k", b"three")], producer) == 3
    assert coordinator_log.append(0, [(b"k", b"plain")]) == 4
    assert (log.producers.entries[PRODUCER_ID].has_open_transaction(EPOCH), log.last_stable_offset) == (True, 0)
    assert coordinator_log.append_marker(0, marker()) == 5
    assert (log.producers.entries[PRODUCER_ID].has_open_transaction(EPOCH), log.last_stable_offset) == (False, 5)
    batches = list(iter_batches(harness.run(coordinator_log.read(0, 0, 1 << 20))))
    assert [(batch.is_transactional, batch.is_control) for batch in batches] == [
        (True, False),
        (True, False),
        (False, False),
        (True, True),
    ]


def test_a_verified_producer_needs_the_present_guard_or_an_open_transaction(
    harness: Harness, coordinator_log: CoordinatorLog
) -> None:
    replica = harness.broker.replicas.get(GROUP_METADATA_TOPIC, 0)
    assert replica is not None
    guard = replica.begin_verification(PRODUCER_ID, EPOCH, -1, False)
    coordinator_log.append_marker(0, marker(commit=False))
    late = Producer(PRODUCER_ID, EPOCH, verified=True, guard=guard)
    with pytest.raises(KafkaError) as caught:
        coordinator_log.append(0, [(b"k", b"v")], late)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    guard = replica.begin_verification(PRODUCER_ID, EPOCH, -1, False)
    coordinator_log.append(0, [(b"k", b"v")], late._replace(guard=guard))
    assert replica.begin_verification(PRODUCER_ID, EPOCH, -1, False) is None
    coordinator_log.append(0, [(b"k", b"v")], late._replace(guard=None))


def test_markers_and_records_of_earlier_epochs_are_refused(harness: Harness, coordinator_log: CoordinatorLog) -> None:
    coordinator_log.append(0, [(b"k", b"v")], Producer(PRODUCER_ID, EPOCH))
    coordinator_log.append_marker(0, marker(coordinator_epoch=5))
    for refused, code in (
        (lambda: coordinator_log.append(0, [(b"k", b"v")], Producer(PRODUCER_ID, EPOCH - 1)), "INVALID_PRODUCER_EPOCH"),
        (lambda: coordinator_log.append_marker(0, marker(epoch=EPOCH - 1)), "INVALID_PRODUCER_EPOCH"),
        (lambda: coordinator_log.append_marker(0, marker(coordinator_epoch=4)), "TRANSACTION_COORDINATOR_FENCED"),
    ):
        with pytest.raises(KafkaError) as caught:
            refused()
        assert caught.value.code is ErrorCode[code]
