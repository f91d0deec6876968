"""A downgrade of transaction.version: the open transactions of its protocol are aborted (KIP-890, part 2).

The controller's broker aborts those that it coordinates before the level falls, every broker those that it coordinates
once the lower level is in force: some may have begun meanwhile, and no request ends those of another broker.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from gregor.broker.log import logger
from gregor.protocol.errors import KafkaError
from gregor.replication.store.features import TRANSACTION_VERSION

if TYPE_CHECKING:
    from gregor.replication.admin.features import FeatureAdmin
    from gregor.replication.store.features import FinalizedFeatures

NEW_PROTOCOL = 2
"""The first level of transaction.version with the protocol."""


class Transactions(Protocol):
    """The transaction coordinator of this broker."""

    async def end_new_protocol(self) -> None: ...


class TransactionDowngrade:
    """Follows the levels of one broker; it subscribes to them itself."""

    def __init__(
        self,
        transactions: Transactions,
        features: FinalizedFeatures,
        admin: FeatureAdmin,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._transactions = transactions
        self._features = features
        self._spawn = spawn
        self._level = features.transaction_version()
        features.on_changed.append(self._changed)
        admin.before_downgrade.append(self._prepare)

    async def _prepare(self, name: str, level: int, after: int) -> None:
        if name == TRANSACTION_VERSION and after < NEW_PROTOCOL <= level:
            await self._transactions.end_new_protocol()

    def _changed(self) -> None:
        before, self._level = self._level, self._features.transaction_version()
        if self._level < NEW_PROTOCOL <= before:
            self._spawn(self._end())

    async def _end(self) -> None:
        try:
            await self._transactions.end_new_protocol()
        except KafkaError as error:
            logger.warning(
                "%s fell below %d, and open transactions of its protocol could not be aborted: %s; they end when their"
                " clients end them, or by their timeouts",
                TRANSACTION_VERSION,
                NEW_PROTOCOL,
                error,
            )
