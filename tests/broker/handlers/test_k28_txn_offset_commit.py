"""TxnOffsetCommit: partitions that do not exist, and the verification of the transaction before the append."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.handlers.k28_txn_offset_commit import txn_offset_commit
from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from gregor.protocol.topic_partition import TopicPartition
from tests.coordinator.context import Context

VERSIONS = range(7)
EXISTING = {"t": 3, "u": 1}
TOPIC_IDS = {name: name.encode() * 16 for name in "tuv"}
NAMES = {TOPIC_IDS[name]: name for name in EXISTING}


class Replica:
    """The partition of the offsets topic, with the calls of begin_verification."""

    def __init__(self) -> None:
        self.is_leader = True
        self.guard: object | None = object()
        self.begun: list[tuple[int, int, int, bool]] = []

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, new_protocol: bool) -> object | None:
        self.begun.append((producer_id, epoch, sequence, new_protocol))
        return self.guard


class Verifier:
    """Completes each verification with `error`, the first ones with `errors_before`."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.errors_before: list[ErrorCode] = []
        self.verified: list[tuple[Any, ...]] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        verify_only: bool,
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        wanted = list(partitions)
        self.verified.append((transactional_id, producer_id, producer_epoch, wanted, verify_only))
        outcome: Deferred[dict[TopicPartition, ErrorCode]] = Deferred()
        error = self.errors_before.pop(0) if self.errors_before else self.error
        asyncio.get_running_loop().call_soon(outcome.complete, dict.fromkeys(wanted, error))
        return outcome


class Broker:
    """The parts of a broker that the handler uses; its group coordinator has one partition, with a log in memory."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.replica: Replica | None = Replica()
        self.transaction_verifier = Verifier()
        self.gate = LoopGate()
        self.loop = context.loop
        self.config = {
            "transaction.partition.verification.enable": True,
            "add.partitions.to.txn.retry.backoff.ms": 20,
            "add.partitions.to.txn.retry.backoff.max.ms": 100,
        }
        self.groups = context.coordinator
        self.metadata = SimpleNamespace(
            partition_count=lambda topic: EXISTING.get(topic, 0), topic_name=lambda topic_id: NAMES.get(topic_id)
        )
        self.replicas = SimpleNamespace(get=self._replica)

    def _replica(self, topic: str, partition: int) -> Replica | None:
        assert (topic, partition) == (GROUP_METADATA_TOPIC, 0)
        return self.replica

    def commit(self, offsets: dict[tuple[str, int], int], version: int = 5) -> dict[tuple[str, int], ErrorCode]:
        topics: dict[str, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = {}
        for (name, index), offset in offsets.items():
            known: dict[str, Any] = {"name": name} if version < 6 else {"topic_id": TOPIC_IDS[name]}
            topic = topics.setdefault(
                name,
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(**known, partitions=[]),
            )
            topic.partitions.append(
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=""
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id="tx", group_id="g", producer_id=7, producer_epoch=2, topics=list(topics.values())
        )
        call: Any = SimpleNamespace(version=version)
        broker: Any = self
        response: TxnOffsetCommitResponse = self.context.run(txn_offset_commit(broker, request, call))
        response, _ = TxnOffsetCommitResponse.decode(response.encode(version), version)
        names = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
        return {
            (topic.name or names[topic.topic_id], part.partition_index): ErrorCode(part.error_code)
            for topic in response.topics
            for part in topic.partitions
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_transaction_is_verified_with_its_coordinator_and_from_v5_on_gets_the_partition(version: int) -> None:
    with Context() as context:
        broker = Broker(context)
        assert broker.replica is not None
        assert broker.commit({("t", 0): 5}, version) == {("t", 0): ErrorCode.NONE}
        assert broker.replica.begun == [(7, 2, -1, version >= 5)]
        partition = TopicPartition(GROUP_METADATA_TOPIC, 0)
        assert broker.transaction_verifier.verified == [("tx", 7, 2, [partition], version < 5)]
        assert context.log.guards == [broker.replica.guard]
        assert context.pending() == {("g", "t", 0): {7: 5}}


def test_a_transaction_that_is_open_in_the_partition_is_not_verified_again() -> None:
    with Context() as context:
        broker = Broker(context)
        assert broker.replica is not None
        broker.replica.guard = None
        assert broker.commit({("t", 0): 5}) == {("t", 0): ErrorCode.NONE}
        assert broker.transaction_verifier.verified == []
        assert context.log.guards == [None]


@pytest.mark.parametrize(
    ("error", "before_v4", "from_v4"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_errors_of_the_verification_as_each_version_knows_them(
    error: ErrorCode, before_v4: ErrorCode, from_v4: ErrorCode
) -> None:
    with Context() as context:
        broker = Broker(context)
        broker.transaction_verifier.error = error
        assert broker.commit({("t", 0): 5}, 3) == {("t", 0): before_v4}
        assert broker.commit({("t", 0): 5}, 4) == {("t", 0): from_v4}
        assert context.log.appends == 0


def test_the_partition_is_added_again_while_the_transaction_before_ends() -> None:
    with Context() as context:
        broker = Broker(context)
        broker.transaction_verifier.errors_before = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
        begin_s = context.loop.time()
        assert broker.commit({("t", 0): 5}) == {("t", 0): ErrorCode.NONE}
        assert len(broker.transaction_verifier.verified) == 3
        assert context.loop.time() - begin_s == pytest.approx(0.04)


def test_the_partition_is_not_added_again_for_long() -> None:
    with Context() as context:
        broker = Broker(context)
        broker.transaction_verifier.error = ErrorCode.CONCURRENT_TRANSACTIONS
        assert broker.commit({("t", 0): 5}) == {("t", 0): ErrorCode.CONCURRENT_TRANSACTIONS}
        assert 5 <= len(broker.transaction_verifier.verified) <= 7
        assert context.log.appends == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_before_v5_the_verification_can_be_switched_off(version: int) -> None:
    with Context() as context:
        broker = Broker(context)
        broker.config["transaction.partition.verification.enable"] = False
        assert broker.commit({("t", 0): 5}, version) == {("t", 0): ErrorCode.NONE}
        assert len(broker.transaction_verifier.verified) == (version >= 5)
        assert context.log.verified == [version >= 5]


@pytest.mark.parametrize("led", [True, False])
def test_a_broker_that_does_not_lead_the_partition_verifies_nothing(led: bool) -> None:
    with Context() as context:
        broker = Broker(context)
        if led and broker.replica is not None:
            broker.replica.is_leader = False
        else:
            broker.replica = None
        assert broker.commit({("t", 0): 5}) == {("t", 0): ErrorCode.NOT_COORDINATOR}
        assert broker.transaction_verifier.verified == []


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_that_do_not_exist_are_refused_and_the_others_stored(version: int) -> None:
    """From v6 on they come with topic ids, and one that no topic has gets an error of its own."""
    with Context() as context:
        broker = Broker(context)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.commit({("t", 2): 5, ("t", 3): 5, ("u", 0): 6, ("v", 0): 7, ("t", -1): 5}, version) == {
            ("t", 2): ErrorCode.NONE,
            ("u", 0): ErrorCode.NONE,
            ("t", 3): unknown,
            ("t", -1): unknown,
            ("v", 0): unknown if version < 6 else ErrorCode.UNKNOWN_TOPIC_ID,
        }
        assert context.pending() == {("g", "t", 2): {7: 5}, ("g", "u", 0): {7: 6}}


def test_without_a_partition_that_exists_nothing_is_verified() -> None:
    with Context() as context:
        broker = Broker(context)
        assert broker.commit({("v", 0): 7}) == {("v", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert broker.commit({}) == {}
        assert broker.transaction_verifier.verified == []
