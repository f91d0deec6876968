"""Requests of one transactional id to its coordinator.

They are those of the protocol before KIP-890 (AddPartitionsToTxn up to 3, EndTxn up to 4, Produce up to 11), which
brokers serve with every level of transaction.version. Its weakness, that the next transaction may have the epoch of the
one before, does not matter here: each attempt of a batch has an epoch of its own.
"""

from __future__ import annotations

from collections.abc import Collection

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import ANY_BROKER, Cluster, CoordinatorKind
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.sink.identity import ProducerIdentity

_INIT_PRODUCER_ID_VERSIONS = 0, 5
_ADD_PARTITIONS_VERSIONS = 0, 3
_END_TXN_VERSIONS = 0, 4


def idempotent_identity(cluster: Cluster) -> ProducerIdentity:
    """Return a new producer id, without transactions."""

    def once() -> ProducerIdentity:
        lowest, highest = _INIT_PRODUCER_ID_VERSIONS
        version = cluster.version(ANY_BROKER, InitProducerIdRequest, highest, lowest)
        timeout_ms = cluster.settings.request_timeout_ms  # has no meaning without a transactional id
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms)
        response = cluster.exchange(ANY_BROKER, request, version)
        if response.error_code:
            raise KafkaFailure(response.error_code, "the cluster has not assigned a producer id")
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    return cluster.retrying().run(once)


class Transactions:
    """The transactions of one transactional id."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms

    def begin_epoch(self) -> ProducerIdentity:
        """Fence all producers before, and return the identity of the next.

        Their open transaction is aborted. One that was about to be committed is committed first: until then the
        coordinator answers CONCURRENT_TRANSACTIONS, which is repeated.
        """
        return self._cluster.retrying().run(self._begin_epoch)

    def _begin_epoch(self) -> ProducerIdentity:
        coordinator = self._coordinator()
        lowest, highest = _INIT_PRODUCER_ID_VERSIONS
        version = self._cluster.version(coordinator, InitProducerIdRequest, highest, lowest)
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=self._timeout_ms
        )
        response = self._cluster.exchange(coordinator, request, version)
        if response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise KafkaFailure(
                response.error_code,
                f"kafka.transaction.timeout.ms={self._timeout_ms} is above transaction.max.timeout.ms of the brokers",
            )
        self._check(response.error_code, "has no new epoch")
        return ProducerIdentity(response.producer_id, response.producer_epoch, self._transactional_id)

    def add_partitions(self, identity: ProducerIdentity, partitions: Collection[TopicPartition]) -> None:
        """Make partitions a part of the transaction, before the first batch is written to them."""
        self._cluster.retrying().run(lambda: self._add_partitions(identity, partitions))

    def _add_partitions(self, identity: ProducerIdentity, partitions: Collection[TopicPartition]) -> None:
        coordinator = self._coordinator()
        lowest, highest = _ADD_PARTITIONS_VERSIONS
        version = self._cluster.version(coordinator, AddPartitionsToTxnRequest, highest, lowest)
        topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
        for topic, partition in sorted(partitions):
            part = topics.setdefault(topic, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic))
            part.partitions.append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        response = self._cluster.exchange(coordinator, request, version)
        errors = [
            (result.partition_error_code, f"does not accept {topic.name}-{result.partition_index}")
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
            # One refused partition refuses them all: the others have this code.
            if result.partition_error_code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
        ]
        for code, text in errors:
            self._check(code, text)

    def end(self, identity: ProducerIdentity, *, commit: bool) -> None:
        """Commit or abort. A repetition after a lost response has the same result.

        After a failure the outcome of a commit is unknown until the next `begin_epoch`.
        """
        self._cluster.retrying().run(lambda: self._end(identity, commit))

    def _end(self, identity: ProducerIdentity, commit: bool) -> None:
        coordinator = self._coordinator()
        lowest, highest = _END_TXN_VERSIONS
        version = self._cluster.version(coordinator, EndTxnRequest, highest, lowest)
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=commit,
        )
        response = self._cluster.exchange(coordinator, request, version)
        self._check(response.error_code, "is not committed" if commit else "is not aborted")

    def _coordinator(self) -> int:
        return self._cluster.coordinator(self._transactional_id, CoordinatorKind.TRANSACTION)

    def _check(self, code: int, what: str) -> None:
        if code:
            raise KafkaFailure(code, f"the transaction of {self._transactional_id!r} {what}")
