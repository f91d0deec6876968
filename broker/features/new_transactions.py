"""Before transaction.version falls to 0, the open transactions of the newer protocol end on every broker.

A broker of Apache Kafka 3.9, which may join after the downgrade, does not know how to end them, so each broker aborts
those that it coordinates. An answer of another broker does not show the protocol: the controller's broker waits for
those of the older one there, too, but only if they were open before.

A client that is connected uses the newer protocol until it connects again, and is served. Apache Kafka 4.3.1 answers
UNSUPPORTED_VERSION at level 0, as the older records cannot hold the transaction, and CONCURRENT_TRANSACTIONS to each
later request. That ends the producer: it must not happen here, where the level in force falls before the downgrade is
certain, and rises on one broker before another.
"""

from __future__ import annotations

from typing import Protocol

from gregor.broker.features.downgrade import Broker, named
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from gregor.replication.store.features import NEW_PROTOCOL, TRANSACTION_VERSION

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Transactions(Protocol):
    """The transaction coordinator of this broker."""

    async def end_new_protocol(self) -> None: ...


class NewTransactionsOfBrokers:
    """Implements Subject of a downgrade."""

    feature = TRANSACTION_VERSION
    first_level = NEW_PROTOCOL
    noun = "transactions of the newer protocol"
    left_text = "those of a partition that is loading are aborted after that, the others end with their timeouts"

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def end_here(self) -> None:
        await self._transactions.end_new_protocol()

    async def lost_on(self, _broker: Broker) -> list[str]:
        """A transaction that is aborted is repeated by its client: a downgrade loses nothing."""
        return []

    async def left_on(self, broker: Broker, waited_ms: int) -> list[str]:
        if broker.is_local:
            return []  # `end_here` has awaited their ends
        # Those that have lasted longer than the wait were open at its beginning.
        request = ListTransactionsRequest(state_filters=list(OPEN_STATES), duration_filter=waited_ms)
        response: ListTransactionsResponse = await broker.send(request)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        return [one.transactional_id for one in response.transaction_states]

    def refusal(self, names: set[str]) -> KafkaError:
        return self.unfinished(names)

    def unfinished(self, names: set[str]) -> KafkaError:
        subject = f"{len(names)} transactions are open ({named(names)})" if names else "transactions are open here"
        return KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"{subject}; their markers are not written while a partition has no leader or too few replicas in sync: try"
            " again when all partitions have their min.insync.replicas, or end them with"
            " `gregor transactions forceTerminateTransaction`",
        )
