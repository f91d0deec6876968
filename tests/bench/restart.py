"""The restart of a broker that coordinates many transactional ids and groups.

The records of the coordinators' topics are written into the log folders of a broker that was stopped, of either kind:
one record, in a batch of its own, for each transactional id, and for each group one generation of three members and
three offsets.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterable, Sequence

from gregor.config.topic import LogConfig
from gregor.coordinator.group.records import encode_record
from gregor.coordinator.partitioner import partition_of
from gregor.coordinator.result import Record
from gregor.coordinator.txn.records import encoder
from gregor.coordinator.txn.states import TransactionState
from gregor.coordinator.txn.transaction import EPOCH_PER_TRANSACTION, Transaction
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from gregor.protocol.records.batch import build_batch
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from gregor.storage.folders.names import folder_name
from gregor.storage.fs.files import OsFiles
from gregor.storage.log.contents import LogIdentity
from gregor.storage.log.log import Log
from tests.bench.group_members import ASSIGNOR, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, assignment, subscription
from tests.support.wire import RawConnection

PARTITIONS = 50
MEMBERS = 3
TOPIC = "restart"
TIMEOUT_MS = 60_000
LIMIT_S = 120.0
PAUSE_S = 0.01
_NOT_SERVED = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)

Encoded = tuple[bytes, bytes | None]


def group_ids(count: int) -> list[str]:
    return [f"restart-group-{number}" for number in range(count)]


def transactional_ids(count: int) -> list[str]:
    return [f"restart-id-{number}" for number in range(count)]


def create_coordinators(port: int) -> None:
    """Have the broker create both topics of the coordinators, and wait until it serves all their partitions."""
    with RawConnection(port) as connection:
        for key_type in (0, 1):
            connection.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]), 4)
    wait_until_served(port, transactional_ids(20 * PARTITIONS), group_ids(20 * PARTITIONS), must_exist=False)


def wait_until_served(
    port: int, transactional_ids: Sequence[str], group_ids: Sequence[str], *, must_exist: bool = True
) -> None:
    """Wait until all these are known, or at least have a coordinator that answers."""
    deadline_s = time.monotonic() + LIMIT_S
    one_of_each = {partition_of(one, PARTITIONS): one for one in transactional_ids}
    while not _served(port, list(one_of_each.values()), list(group_ids), must_exist):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the coordinators are not served after {LIMIT_S:.0f} s")
        time.sleep(PAUSE_S)


def _served(port: int, transactional_ids: list[str], group_ids: list[str], must_exist: bool) -> bool:
    try:
        with RawConnection(port) as connection:
            transactions = connection.ask(DescribeTransactionsRequest(transactional_ids=transactional_ids), 0)
            errors = {one.error_code for one in transactions.transaction_states}
            if errors.isdisjoint(_NOT_SERVED):
                errors |= {one.error_code for one in connection.ask(DescribeGroupsRequest(groups=group_ids), 5).groups}
    except OSError:
        return False
    return errors.isdisjoint(_NOT_SERVED) and (not must_exist or errors == {0})


def fill(data: pathlib.Path, transactional_ids: Iterable[str], group_ids: Iterable[str]) -> None:
    """Append the records to the partitions in the data folder of a broker that does not run."""
    now_ms = int(time.time() * 1000)
    encode = encoder(lambda: EPOCH_PER_TRANSACTION)
    of_transactions: dict[int, list[list[Encoded]]] = {}
    for number, name in enumerate(transactional_ids):
        encoded = encode(Record(name, _transaction(1_000_000 + number, now_ms)))
        of_transactions.setdefault(partition_of(name, PARTITIONS), []).append([encoded])
    _append(data, TRANSACTION_STATE_TOPIC, of_transactions, now_ms)
    of_groups: dict[int, list[list[Encoded]]] = {}
    for name in group_ids:
        batches = [[encode_record(_generation(name, now_ms))], [encode_record(one) for one in _offsets(name, now_ms)]]
        of_groups.setdefault(partition_of(name, PARTITIONS), []).extend(batches)
    _append(data, GROUP_METADATA_TOPIC, of_groups, now_ms)


def _append(data: pathlib.Path, topic: str, by_partition: dict[int, list[list[Encoded]]], now_ms: int) -> None:
    config = LogConfig.defaults().with_overrides({"cleanup.policy": "compact", "segment.bytes": "104857600"})
    files = OsFiles()
    for partition, batches in by_partition.items():
        directory = data / folder_name(topic, partition)
        if not directory.is_dir():
            raise RuntimeError(f"{directory} does not exist: the topic has another number of partitions, or was moved")
        log = Log.open(str(directory), LogIdentity(topic, partition), config, files, now_ms=now_ms)
        epoch = log.latest_epoch() or 0
        for records in batches:
            log.append_as_leader(build_batch(records, timestamp_ms=now_ms), epoch, now_ms, from_client=False)
        log.close(clean=True)


def _transaction(producer_id: int, now_ms: int) -> Transaction:
    """A transactional id at rest after a commit."""
    return Transaction(
        producer_id,
        5,
        TIMEOUT_MS,
        TransactionState.COMPLETE_COMMIT,
        now_ms,
        start_ms=now_ms,
        client_version=EPOCH_PER_TRANSACTION,
    )


def _generation(group_id: str, now_ms: int) -> Record:
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=f"{group_id}-member-{number}",
            client_id="restart",
            client_host="/127.0.0.1",
            rebalance_timeout=REBALANCE_TIMEOUT_MS,
            session_timeout=SESSION_TIMEOUT_MS,
            subscription=subscription(TOPIC),
            assignment=assignment(TOPIC, [number]),
        )
        for number in range(MEMBERS)
    ]
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol=ASSIGNOR,
        leader=members[0].member_id,
        current_state_timestamp=now_ms,
        members=members,
    )
    return Record(GroupMetadataKey(group=group_id), value)


def _offsets(group_id: str, now_ms: int) -> list[Record]:
    value = OffsetCommitValue(offset=1, leader_epoch=0, metadata="", commit_timestamp=now_ms)
    return [Record(OffsetCommitKey(group=group_id, topic=TOPIC, partition=number), value) for number in range(MEMBERS)]


def restart_s(
    start: Callable[[], object], port: int, transactional_ids: Sequence[str], group_ids: Sequence[str]
) -> float:
    """Start the broker; return the time until it serves all transactional ids and groups."""
    begin_s = time.monotonic()
    start()
    wait_until_served(port, transactional_ids, group_ids)
    return time.monotonic() - begin_s
