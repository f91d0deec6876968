"""Before transaction.version falls to 0, the open transactions of the newer protocol end on every broker.

A broker of Apache Kafka 3.9, which may join after the downgrade, does not know how to end them. At level 1 each broker
aborts those that it coordinates (`TransactionsOfNewProtocol`). The controller's broker waits until no transaction that
was open then is listed by another broker; an answer does not show the protocol, so it waits for those of the older one
there, too. A client that is connected uses the newer protocol until it connects again, as with Apache Kafka.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from gregor.broker.log import logger
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from gregor.replication.channels.peer import Peer, PeerError
from gregor.replication.store.features import NEW_PROTOCOL, TRANSACTION_VERSION

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.turns import Gate
    from gregor.replication.admin.features import Downgrade
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.store.features import FinalizedFeatures

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
POLL_S = 0.1
MAX_NAMED = 5


class Transactions(Protocol):
    """The transaction coordinator of this broker."""

    async def end_new_protocol(self) -> None: ...


class TransactionsOfNewProtocol:
    """Aborts the open transactions of the newer protocol that this broker coordinates when the level falls below it."""

    def __init__(
        self,
        features: FinalizedFeatures,
        transactions: Transactions,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._features = features
        self._transactions = transactions
        self._spawn = spawn
        self._level = features.transaction_version()
        features.on_changed.append(self._changed)

    def _changed(self) -> None:
        before, self._level = self._level, self._features.transaction_version()
        if before >= NEW_PROTOCOL > self._level:
            self._spawn(self._end())

    async def _end(self) -> None:
        try:
            await self._transactions.end_new_protocol()
        except KafkaError as error:
            logger.warning(
                "transactions of the newer protocol are still open after the downgrade of %s: %s; those of a partition"
                " that is loading are aborted after that, the others end with their timeouts",
                TRANSACTION_VERSION,
                error,
            )


class TransactionDowngrade:
    """Waits on the controller's broker. `new_peer` makes a connection to another broker at a host and port."""

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        transactions: Transactions,
        gate: Gate,
        *,
        new_peer: Callable[[str, int], Peer] | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        client_id, timeout_ms = f"broker-{config.broker_id}-features", config["request.timeout.ms"]
        self._broker_id = config.broker_id
        self._listener = config.inter_broker_listener_name
        self._image = image
        self._transactions = transactions
        self._new_peer = new_peer or (lambda host, port: Peer(host, port, client_id, timeout_ms, gate))
        self._poll_s = poll_s

    async def prepare(self, downgrade: Downgrade, timeout_ms: int) -> None:
        """Wait until the transactions that are open now have ended (a step of FeatureAdmin). Raises KafkaError:
        CONCURRENT_TRANSACTIONS if some are open when the time is over, BROKER_NOT_AVAILABLE if a broker did not
        answer, and what the coordinator of this broker raises."""
        if downgrade.name != TRANSACTION_VERSION or downgrade.after:
            return
        begun_s = time.monotonic()
        until_s = begun_s + timeout_ms / 1000
        await self._end_here(timeout_ms)
        peers = self._peers()
        try:
            while True:
                # Those that have lasted longer than this wait were open at its beginning.
                waited_ms = int((time.monotonic() - begun_s) * 1000)
                found = await self._open(peers, waited_ms, until_s)
                if not found:
                    return
                if time.monotonic() >= until_s:
                    named = ", ".join(sorted(found)[:MAX_NAMED])
                    raise KafkaError(
                        ErrorCode.CONCURRENT_TRANSACTIONS,
                        f"{len(found)} transactions are open ({named}): try again when they have ended, or end them"
                        " with `gregor transactions forceTerminateTransaction`",
                    )
                await asyncio.sleep(self._poll_s)
        finally:
            for peer in peers.values():
                peer.close()

    async def _end_here(self, timeout_ms: int) -> None:
        """End those of this broker; a marker for a partition that accepts no records waits without end."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._transactions.end_new_protocol()
        except TimeoutError as error:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"transactions that broker {self._broker_id} coordinates have not ended within {timeout_ms} ms: their"
                " markers are not written while a partition has no leader or too few replicas in sync; try again when"
                " all partitions have their min.insync.replicas",
            ) from error

    def _peers(self) -> dict[int, Peer]:
        return {
            broker_id: self._new_peer(endpoint.host, endpoint.port)
            for broker_id, broker in self._image.brokers.items()
            if broker_id != self._broker_id and (endpoint := broker.endpoints.get(self._listener)) is not None
        }

    async def _open(self, peers: dict[int, Peer], waited_ms: int, until_s: float) -> set[str]:
        """Return the transactional ids of the transactions on other brokers that have been open for longer than
        `waited_ms`."""
        request = ListTransactionsRequest(state_filters=list(OPEN_STATES), duration_filter=waited_ms)
        found: set[str] = set()
        for broker_id, peer in sorted(peers.items()):
            while True:
                try:
                    response: ListTransactionsResponse = await peer.send(request)
                    if not response.error_code:
                        found.update(one.transactional_id for one in response.transaction_states)
                        break
                    problem = f"error {response.error_code}"
                except PeerError as error:
                    problem = str(error)
                if time.monotonic() >= until_s:
                    raise KafkaError(
                        ErrorCode.BROKER_NOT_AVAILABLE,
                        f"the open transactions of broker {broker_id} are not known: {problem}",
                    )
                await asyncio.sleep(self._poll_s)
        return found
