"""A warning for each transaction that is open for longer than any producer may request.

Its coordinator would have aborted it: such a transaction hangs (KIP-664). It holds the last stable offset back, so that
consumers with isolation.level=read_committed get no newer record of the partition.

The age is the time since the transaction was seen first, not the timestamp of its records, which a producer sets: a
copy of old records is no old transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.broker.log import logger

if TYPE_CHECKING:
    from gregor.storage.log.log import Log

GRACE_MS = 300_000
"""For the coordinator to abort the transaction and to write its markers."""
CHECK_S = 60.0
"""How often the logs are checked: the age is the time since a check, so a warning comes that much later at most."""
MINUTE_MS = 60_000

_Transaction = tuple[str, int, int, int]
"""Topic, partition, producer id and first offset."""


class OpenTransactions:
    """The open transactions of the partitions that this broker leads, as seen in rounds over all logs."""

    def __init__(self, max_timeout_ms: int, client_of: Callable[[int], str | None]) -> None:
        """`client_of` returns the client of a producer id, if it is known."""
        self._max_age_ms = max_timeout_ms + GRACE_MS
        self._client_of = client_of
        self._first_seen_ms: dict[_Transaction, int] = {}
        self._seen_now: dict[_Transaction, int] = {}
        self._warned: set[_Transaction] = set()

    def observe(self, log: Log, now_ms: int) -> None:
        """Note the open transactions of a log in which records are not stable yet, and warn once of an old one."""
        transactions = log.producers.transactions
        if transactions is None:
            return
        for producer_id, first_offset in transactions.first_offsets.items():
            key = (log.topic, log.partition, producer_id, first_offset)
            since_ms = self._seen_now[key] = self._first_seen_ms.get(key, now_ms)
            if now_ms - since_ms > self._max_age_ms and key not in self._warned:
                self._warned.add(key)
                client = self._client_of(producer_id) or "unknown since the start of this broker"
                _warn(key, log.producer_ids()[producer_id].epoch, client, now_ms - since_ms)

    def end_round(self) -> None:
        """Forget the transactions that were not seen since the round before."""
        self._first_seen_ms, self._seen_now = self._seen_now, {}
        self._warned &= self._first_seen_ms.keys()


def _warn(key: _Transaction, epoch: int, client: str, age_ms: int) -> None:
    topic, partition, producer_id, offset = key
    logger.warning(
        "%s-%d: the transaction of producer %d, epoch %d (client: %s), has been open from offset %d on for more than "
        "%d min, longer than transaction.max.timeout.ms allows; consumers with isolation.level=read_committed wait. "
        "`gregor doctor` shows whether a coordinator still knows it; `gregor transactions abort --topic %s "
        "--partition %d --start-offset %d` aborts it",
        *(topic, partition, producer_id, epoch, client, offset, age_ms // MINUTE_MS, topic, partition, offset),
    )
