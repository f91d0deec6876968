"""The transactional ids of a cluster, as their coordinators describe them (ListTransactions, DescribeTransactions)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gregor.broker.cli.coordinators import MOVING, KeyType, coordinator_of, when_ready
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from gregor.protocol.topic_partition import TopicPartition

DURATION_FROM = 1
"""The version of ListTransactions that has a filter of durations (KIP-994)."""
PATTERN_FROM = 2
"""The version of ListTransactions that has a pattern of transactional ids (KIP-1152)."""
ANY_DURATION = -1

REQUEST_TIMEOUT_MS = 30_000
"""The transaction timeout of the producer that fences another: request.timeout.ms of Kafka's admin client."""
NO_PRODUCER = -1


class Listing(NamedTuple):
    """A transactional id in the list of its coordinator."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class Description(NamedTuple):
    """The state of a transactional id; `start_ms` is -1 without a transaction."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]
    """The partitions in the transaction; once it ends, those whose marker is not yet written."""


def list_transactions(
    client: WireClient,
    *,
    producer_ids: Iterable[int] = (),
    duration_ms: int = ANY_DURATION,
    pattern: str | None = None,
) -> list[Listing]:
    """Return the transactional ids that pass the filters, of all brokers in the order of their ids."""
    request = ListTransactionsRequest(
        state_filters=[],
        producer_id_filters=sorted(producer_ids),
        duration_filter=max(duration_ms, ANY_DURATION),
        transactional_id_pattern=pattern or None,
    )
    found = []
    for broker_id in sorted(client.brokers):
        _check_filters(client, broker_id, duration_ms, pattern)
        for one in _list_of_broker(client, request, broker_id).transaction_states:
            found.append(Listing(one.transactional_id, broker_id, one.producer_id, one.transaction_state))
    return found


def _check_filters(client: WireClient, broker_id: int, duration_ms: int, pattern: str | None) -> None:
    version = client.version(ListTransactionsRequest, broker_id)
    for flag, given, needed in (
        ("--duration-filter", duration_ms >= 0, DURATION_FROM),
        ("--transactional-id-pattern", bool(pattern), PATTERN_FROM),
    ):
        if given and version < needed:
            raise CommandError(
                f"broker {broker_id} offers ListTransactions up to version {version} and cannot filter by {flag}, "
                f"which needs version {needed}; leave {flag} out."
            )


def _list_of_broker(client: WireClient, request: ListTransactionsRequest, broker_id: int) -> ListTransactionsResponse:
    def attempt() -> ListTransactionsResponse:
        response: ListTransactionsResponse = client.send(request, broker_id)
        check_code(response.error_code, f"broker {broker_id} does not list its transactional ids")
        return response

    return when_ready(attempt, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])


def describe_transaction(client: WireClient, transactional_id: str) -> Description:
    """Return the state of a transactional id; raise BrokerRefusal, TRANSACTIONAL_ID_NOT_FOUND if there is none."""

    def attempt() -> Description:
        coordinator_id = coordinator_of(client, transactional_id, KeyType.TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response: DescribeTransactionsResponse = client.send(request, coordinator_id)
        (one,) = response.transaction_states
        if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise BrokerRefusal(one.error_code, f"the coordinator knows no transactional id '{transactional_id}'")
        check_code(one.error_code, f"transactional id '{transactional_id}' cannot be described")
        return _description(one, coordinator_id)

    return when_ready(attempt)


def _description(one: DescribeTransactionsResponse.TransactionState, coordinator_id: int) -> Description:
    partitions = [TopicPartition(topic.topic, index) for topic in one.topics for index in topic.partitions]
    return Description(
        transactional_id=one.transactional_id,
        coordinator_id=coordinator_id,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        state=one.transaction_state,
        timeout_ms=one.transaction_timeout_ms,
        start_ms=one.transaction_start_time_ms,
        partitions=tuple(sorted(partitions)),
    )


def describe_known(client: WireClient, transactional_ids: Iterable[str]) -> dict[str, Description]:
    """Return the state of those transactional ids that still exist."""
    found = {}
    for transactional_id in sorted(set(transactional_ids)):
        try:
            found[transactional_id] = describe_transaction(client, transactional_id)
        except BrokerRefusal as refusal:
            if refusal.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return found


def force_terminate(client: WireClient, transactional_id: str) -> None:
    """Fence the producer of a transactional id, which aborts its transaction (FenceProducersHandler of Kafka's client).

    InitProducerId with no producer id gives the next epoch to a producer that does not exist.
    """

    def attempt() -> None:
        coordinator_id = coordinator_of(client, transactional_id, KeyType.TRANSACTION)
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=REQUEST_TIMEOUT_MS,
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER,
        )
        response: InitProducerIdResponse = client.send(request, coordinator_id)
        check_code(response.error_code, f"the producer of transactional id '{transactional_id}' cannot be fenced")

    when_ready(attempt, MOVING | {ErrorCode.CONCURRENT_TRANSACTIONS})  # the transaction before is still being ended
