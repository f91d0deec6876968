"""The identity under which batches are written, and the codes of a producer that has lost it."""

from __future__ import annotations

from dataclasses import dataclass

from gregor.protocol.errors import ErrorCode


@dataclass(frozen=True)
class ProducerIdentity:
    """A producer id with its epoch. Without a transactional id the producer is idempotent only."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None = None

    @property
    def transactional(self) -> bool:
        return self.transactional_id is not None


FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""A newer epoch exists. Before Kafka 2.7 the only code was INVALID_PRODUCER_EPOCH (KIP-588)."""
