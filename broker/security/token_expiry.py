"""The removal of delegation tokens whose time is over; until then they are refused, but kept."""

from __future__ import annotations

import asyncio

from gregor.broker.log import logger
from gregor.replication.entities.tokens import DelegationTokens
from gregor.replication.store.metadata_store import StoreError


async def remove_expired_tokens(tokens: DelegationTokens, interval_ms: int) -> None:
    """Remove them every delegation.token.expiry.check.interval.ms, until cancelled."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await tokens.remove_expired()
        except StoreError as error:
            logger.warning("expired delegation tokens are not removed, and will be in %d ms: %s", interval_ms, error)
