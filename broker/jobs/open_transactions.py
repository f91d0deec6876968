"""A warning for each transaction that is open for longer than its timeout, or than any producer may request.

Its coordinator would have aborted it: such a transaction hangs (KIP-664). It holds the last stable offset back, so that
consumers with isolation.level=read_committed get no newer record of the partition.

The age is the time since the transaction was seen first, not the timestamp of its records, which a producer sets: a
copy of old records is no old transaction. The timeout is known to the coordinator only, and is requested once for a
transaction that is seen twice; transaction.max.timeout.ms replaces that of a producer that no coordinator knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gregor.broker.log import logger

if TYPE_CHECKING:
    from gregor.storage.log.log import Log

OWN_GRACE_MS = 30_000
"""For the coordinator to abort a transaction behind its timeout, which it does every
transaction.abort.timed.out.transaction.cleanup.interval.ms, and to write its markers."""
GRACE_MS = 300_000
"""The same where the timeout is not known: its coordinator may be loading, or not be reached."""
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
        self._timeouts_ms: dict[int, int] = {}
        self._without_timeout: set[int] = set()
        self._warned: set[_Transaction] = set()

    def observe(self, log: Log, now_ms: int) -> None:
        """Note the open transactions of a log in which records are not stable yet, and warn once of an old one."""
        transactions = log.producers.transactions
        if transactions is None:
            return
        for producer_id, first_offset in transactions.first_offsets.items():
            key = (log.topic, log.partition, producer_id, first_offset)
            since_ms = self._seen_now[key] = self._first_seen_ms.get(key, now_ms)
            if key in self._warned or since_ms == now_ms:
                continue
            timeout_ms = self._timeouts_ms.get(producer_id)
            if timeout_ms is None:
                self._without_timeout.add(producer_id)
            if now_ms - since_ms > (self._max_age_ms if timeout_ms is None else timeout_ms + OWN_GRACE_MS):
                self._warned.add(key)
                client = self._client_of(producer_id) or "unknown since the start of this broker"
                _warn(key, log.producers.entries[producer_id].epoch, client, now_ms - since_ms, timeout_ms)

    def producers_without_timeout(self) -> set[int]:
        """Return the producers of this round whose transactions were seen before, and whose timeouts are not known."""
        return self._without_timeout

    def set_timeouts(self, timeouts_ms: Mapping[int, int]) -> None:
        """Set the timeouts of producers' transactions, for the rounds in which these are open."""
        self._timeouts_ms |= timeouts_ms

    def end_round(self) -> None:
        """Forget the transactions that were not seen since the round before."""
        self._first_seen_ms, self._seen_now = self._seen_now, {}
        self._warned &= self._first_seen_ms.keys()
        self._without_timeout = set()
        if self._timeouts_ms:
            still_open = {producer_id for _, _, producer_id, _ in self._first_seen_ms}
            self._timeouts_ms = {one: time for one, time in self._timeouts_ms.items() if one in still_open}


def _warn(key: _Transaction, epoch: int, client: str, age_ms: int, timeout_ms: int | None) -> None:
    topic, partition, producer_id, offset = key
    limit = "transaction.max.timeout.ms allows" if timeout_ms is None else f"its timeout of {timeout_ms} ms"
    logger.warning(
        "%s-%d: the transaction of producer %d, epoch %d (client: %s), has been open from offset %d on for more than "
        "%d min, longer than %s; consumers with isolation.level=read_committed wait. "
        "`gregor doctor` shows whether a coordinator still knows it; `gregor transactions abort --topic %s "
        "--partition %d --start-offset %d` aborts it",
        *(topic, partition, producer_id, epoch, client, offset, age_ms // MINUTE_MS, limit, topic, partition, offset),
    )
