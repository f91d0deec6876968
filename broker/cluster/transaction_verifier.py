"""Whether partitions are part of a transaction: verified with, or added by, its coordinator, here or on another broker.

A partition leader needs it before it appends the first records of a transaction (KIP-890): records that a producer sent
before its transaction was aborted must not begin another one, which nothing would end. Rules: Kafka's
AddPartitionsToTxnManager. Where it refuses one of two requests for the same transactional id that would be in the same
request to the coordinator, they are sent one after the other here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gregor.broker.cluster.peer_queue import PeerQueues
from gregor.broker.log import logger
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from gregor.protocol.topic_names import TRANSACTION_STATE_TOPIC
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.replication.channels.peer import Peer, PeerError
    from gregor.replication.partition.metadata_image import MetadataImage

VERIFIES_FROM = 4
"""The first version of AddPartitionsToTxn that brokers send."""

_SHOWN_AS = {
    # Producers expect the one error and not the other (KIP-890).
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # A client cannot correct the rights of a broker.
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}

Verified = Deferred[dict[TopicPartition, ErrorCode]]


class Transactions(Protocol):
    """The transaction coordinator of this broker."""

    def partition_for(self, transactional_id: str) -> int: ...

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Verified: ...


class _Check(NamedTuple):
    """The partitions of one transaction, and what the coordinator answers about each."""

    transaction: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    outcome: Verified

    def complete(self, error: ErrorCode) -> None:
        """Complete with the same error, or with NONE, for all partitions."""
        self.outcome.complete(self.errors(error))

    def errors(self, error: ErrorCode) -> dict[TopicPartition, ErrorCode]:
        """Return the error for all partitions."""
        return {
            TopicPartition(topic.name, index): error for topic in self.transaction.topics for index in topic.partitions
        }


class PartitionVerifier:
    """Sends the checks of each coordinator, one request at a time."""

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        transactions: Transactions,
        background: Background,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        self._broker_id = config.broker_id
        self._image = image
        self._transactions = transactions
        self._queues: PeerQueues[_Check] = PeerQueues(
            config, image, background, "transaction-verifier", self._exchange, self._not_sent, security=security
        )

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        verify_only: bool,
    ) -> Verified:
        """Complete with an error or NONE for each partition: whether it is part of the producer's open transaction or,
        without `verify_only`, whether it is now. A coordinator that cannot be reached: NETWORK_EXCEPTION."""
        state = self._image.partition(TRANSACTION_STATE_TOPIC, self._transactions.partition_for(transactional_id))
        if state is not None and state.leader == self._broker_id:
            outcome: Verified = Deferred()
            self._transactions.add_or_verify(
                transactional_id, producer_id, producer_epoch, partitions, verify_only=verify_only
            ).then(partial(_complete_shown, outcome))
            return outcome
        topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
        for name, index in partitions:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name)
            topic.partitions.append(index)
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=verify_only,
            topics=list(topics.values()),
        )
        check = _Check(transaction, Deferred())
        if state is None or not self._queues.add(state.leader, check):
            check.complete(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return check.outcome

    def close(self) -> None:
        """End the checks that are under way: the broker stops."""
        self._queues.close()

    async def _exchange(self, peer: Peer, checks: list[_Check]) -> None:
        offered = await peer.offered(ApiKey.ADD_PARTITIONS_TO_TXN)
        if offered is None or offered[1] < VERIFIES_FROM:
            self._pass(peer, checks)
            return
        while checks:
            now: dict[str, _Check] = {}
            later = []
            for check in checks:
                if check.transaction.transactional_id in now:
                    later.append(check)
                else:
                    now[check.transaction.transactional_id] = check
            request = AddPartitionsToTxnRequest(transactions=[check.transaction for check in now.values()])
            _apply(now.values(), await peer.send(request))
            checks = later

    def _pass(self, peer: Peer, checks: Iterable[_Check]) -> None:
        """Complete checks that the coordinator does not know: an Apache Kafka before 3.6."""
        logger.warning("the transaction coordinator at %s cannot verify partitions; records are appended without", peer)
        for check in checks:
            adds = not check.transaction.verify_only
            check.complete(ErrorCode.COORDINATOR_NOT_AVAILABLE if adds else ErrorCode.NONE)

    def _not_sent(self, checks: list[_Check], error: PeerError) -> None:
        if not all(check.outcome.done for check in checks):
            logger.info("partitions cannot be verified, their transaction coordinator is not reached: %s", error)
        for check in checks:
            check.complete(ErrorCode.NETWORK_EXCEPTION)


def _apply(checks: Iterable[_Check], response: AddPartitionsToTxnResponse) -> None:
    """Complete checks by the response to them."""
    results = {result.transactional_id: result for result in response.results_by_transaction}
    for check in checks:
        result = results.get(check.transaction.transactional_id)
        if response.error_code or result is None:
            code = ErrorCode(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            check.complete(_SHOWN_AS.get(code, code))
            continue
        # A partition that the coordinator omits is not verified.
        errors = check.errors(ErrorCode.UNKNOWN_SERVER_ERROR)
        for topic in result.topic_results:
            for partition in topic.results_by_partition:
                code = ErrorCode(partition.partition_error_code)
                errors[TopicPartition(topic.name, partition.partition_index)] = _SHOWN_AS.get(code, code)
        check.outcome.complete(errors)


def _complete_shown(outcome: Verified, answered: Verified) -> None:
    """Complete with the answer of the coordinator on this broker."""
    if answered.error is not None:
        outcome.fail(answered.error)
    else:
        errors = answered.value or {}
        outcome.complete({partition: _SHOWN_AS.get(code, code) for partition, code in errors.items()})
