"""The settings of the transaction coordinator, typed, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from gregor.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """One field per broker setting, see `from_broker` for their names."""

    max_timeout_ms: int = 15 * 60 * 1000
    expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    expiration_interval_ms: int = 60 * 60 * 1000
    abort_retry_ms: int = 10_000
    """The pause before an overdue transaction whose abort could not be written is aborted again. Overdue ones are not
    searched for: each has a timer."""
    end_wait_ms: int = 20
    """The longest wait of the next transaction's partitions for the end of the one before. After it the request is
    refused, and its sender retries."""
    commit_timeout_ms: int = 30_000
    load_buffer_bytes: int = 5 * 1024 * 1024

    @classmethod
    def from_broker(cls, broker: BrokerConfig) -> TransactionConfig:
        """Read the settings of this broker. Apache Kafka waits `request.timeout.ms` for the commit of a record."""
        return cls(
            max_timeout_ms=broker["transaction.max.timeout.ms"],
            expiration_ms=broker["transactional.id.expiration.ms"],
            expiration_interval_ms=broker["transaction.remove.expired.transaction.cleanup.interval.ms"],
            abort_retry_ms=broker["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            end_wait_ms=broker["add.partitions.to.txn.retry.backoff.ms"],
            commit_timeout_ms=broker["request.timeout.ms"],
            load_buffer_bytes=broker["transaction.state.log.load.buffer.size"],
        )
