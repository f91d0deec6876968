"""The settings of the group coordinator, typed, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from gregor.config.broker import BrokerConfig

INT_MAX = 2**31 - 1
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a first join may stay parked: its sender has no id yet, hence no heartbeat, and may long be gone."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One field per broker setting, see `from_broker` for their names."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = INT_MAX
    metadata_max_bytes: int = 4_096
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    retention_check_interval_ms: int = 600_000
    commit_timeout_ms: int = 5_000
    load_buffer_bytes: int = 5 * 1024 * 1024

    @classmethod
    def from_broker(cls, broker: BrokerConfig) -> GroupConfig:
        """Read the settings of this broker."""
        return cls(
            min_session_timeout_ms=broker["group.min.session.timeout.ms"],
            max_session_timeout_ms=broker["group.max.session.timeout.ms"],
            initial_rebalance_delay_ms=broker["group.initial.rebalance.delay.ms"],
            max_size=broker["group.max.size"],
            metadata_max_bytes=broker["offset.metadata.max.bytes"],
            retention_ms=broker["offsets.retention.minutes"] * 60 * 1000,
            retention_check_interval_ms=broker["offsets.retention.check.interval.ms"],
            commit_timeout_ms=broker["offsets.commit.timeout.ms"],
            load_buffer_bytes=broker["offsets.load.buffer.size"],
        )
