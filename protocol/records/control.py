"""The end of a transaction, as its coordinator has the leaders of the partitions write it."""

from __future__ import annotations

from typing import NamedTuple


class EndTransaction(NamedTuple):
    """One marker: the producer's open transaction is committed or aborted (KIP-98).

    `transaction_version` 2: the epoch is the one after that of the transaction (KIP-890).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
