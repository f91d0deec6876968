"""The timeouts of producers' transactions, which only their coordinators know: on this broker, or on others.

A partition leader knows the producer id of an open transaction, neither its transactional id nor its timeout. So each
coordinator is sent a list request with the producer ids as filter, and describes the transactional ids that it lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gregor.broker.cluster.peer_queue import PeerQueues
from gregor.broker.log import logger
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from gregor.protocol.topic_names import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.replication.channels.peer import Peer, PeerError
    from gregor.replication.partition.metadata_image import MetadataImage

MAX_PRODUCERS = 1_000
"""In one search; the others are searched for in the next one."""

Timeouts = dict[int, int]
"""Of transactions by producer id, in ms."""


class Transactions(Protocol):
    """The transaction coordinator of this broker."""

    async def list(self, request: ListTransactionsRequest, version: int) -> ListTransactionsResponse: ...

    async def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse: ...


class _Search(NamedTuple):
    """Producer ids, and the timeouts of those that a coordinator knows."""

    producer_ids: Collection[int]
    outcome: Deferred[Timeouts]


class TransactionTimeouts:
    """Sends the searches to the coordinators, to each one request at a time."""

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
        self._queues: PeerQueues[_Search] = PeerQueues(
            config, image, background, "transaction-timeouts", self._exchange, self._not_sent, security=security
        )

    async def of(self, producer_ids: Collection[int]) -> Timeouts:
        """Return the timeouts of those producers that a coordinator knows and describes to this broker.

        This broker's coordinator comes first; the others are searched for the rest. A coordinator that is not reached,
        that is loading, or that denies this broker the description, knows none.
        """
        wanted = frozenset(sorted(producer_ids)[:MAX_PRODUCERS])
        found = await _search(wanted, self._list_here, self._transactions.describe)
        left = wanted - found.keys()
        if not left:
            return found
        searches = {coordinator: _Search(left, Deferred()) for coordinator in self._other_coordinators()}
        for coordinator, search in searches.items():
            if not self._queues.add(coordinator, search):
                search.outcome.complete({})
        for search in searches.values():
            timeouts = await outcome_of(search.outcome, asyncio.get_running_loop().create_future())
            found |= timeouts
        return found

    def close(self) -> None:
        """End the searches that are under way: the broker stops."""
        self._queues.close()

    def _other_coordinators(self) -> list[int]:
        topic = self._image.topic(TRANSACTION_STATE_TOPIC)
        leaders = set() if topic is None else {state.leader for state in topic.partitions.values()}
        return sorted(leaders - {self._broker_id})

    async def _list_here(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        return await self._transactions.list(request, ListTransactionsRequest.MAX_VERSION)

    async def _exchange(self, peer: Peer, searches: list[_Search]) -> None:
        for search in searches:
            search.outcome.complete(await _search(search.producer_ids, peer.send, peer.send))

    def _not_sent(self, searches: list[_Search], error: PeerError) -> None:
        logger.info("the timeouts of transactions are not known, a coordinator of them is not reached: %s", error)
        for search in searches:
            search.outcome.complete({})


async def _search(
    producer_ids: Collection[int],
    list_: Callable[[ListTransactionsRequest], Awaitable[Any]],
    describe: Callable[[DescribeTransactionsRequest], Awaitable[Any]],
) -> Timeouts:
    """Return the timeouts of the producers that one coordinator knows."""
    listed: ListTransactionsResponse = await list_(ListTransactionsRequest(producer_id_filters=sorted(producer_ids)))
    names = [one.transactional_id for one in listed.transaction_states if one.producer_id in producer_ids]
    if not names:
        return {}
    described: DescribeTransactionsResponse = await describe(DescribeTransactionsRequest(transactional_ids=names))
    return {
        one.producer_id: one.transaction_timeout_ms
        for one in described.transaction_states
        if one.error_code == ErrorCode.NONE and one.producer_id in producer_ids
    }
