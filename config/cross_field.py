"""Limits that broker settings set for each other, and limits of changes while the broker runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gregor.config.definitions import ConfigError
from gregor.config.tables.authorizer_keys import parse_super_users
from gregor.config.tables.broker_keys import broker_synonyms

# Sizes of thread pools in Apache Kafka: a running broker accepts from half to double of the present size.
THREAD_KEYS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
# At 0 no client could connect any more; the same holds for a single listener.
_CONNECTION_LIMITS = ("max.connection.creation.rate", "max.connections")
_MIN_DEDUPE_BYTES = 1024 * 1024


def check_cross_field(values: Mapping[str, Any]) -> None:
    """Raise ConfigError where two settings contradict each other."""
    for unlimited, keys in ((-1, broker_synonyms("log.retention.ms")), (None, broker_synonyms("log.roll.ms"))):
        for key in keys:
            value = values[key]
            if value is not None and value < 1 and value != unlimited:
                least = "at least 1" if unlimited is None else "-1 (never) or at least 1"
                raise ConfigError(key, value, f"must be {least}")
    jitter = values["log.roll.jitter.ms"]
    if jitter is not None and jitter < 0:
        raise ConfigError("log.roll.jitter.ms", jitter, "must be at least 0")
    queued, request_max = values["queued.max.request.bytes"], values["socket.request.max.bytes"]
    if 0 < queued < request_max:
        raise ConfigError(
            "queued.max.request.bytes", queued, f"must be -1 or at least socket.request.max.bytes, {request_max}"
        )
    wait = values["replica.fetch.wait.max.ms"]
    for key in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait > values[key]:
            raise ConfigError("replica.fetch.wait.max.ms", wait, f"must be at most {key}, {values[key]}")
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        raise ConfigError(
            "max.connections.per.ip", 0, "refuses all clients; 0 is legal only beside max.connections.per.ip.overrides"
        )
    _check_overrides(values["max.connections.per.ip.overrides"])
    parse_super_users(values["super.users"])
    _check_group_protocols(values)
    low, high = values["log.cleaner.min.compaction.lag.ms"], values["log.cleaner.max.compaction.lag.ms"]
    if low > high:
        raise ConfigError(
            "log.cleaner.min.compaction.lag.ms", low, f"must be at most log.cleaner.max.compaction.lag.ms, {high}"
        )
    buffer, threads = values["log.cleaner.dedupe.buffer.size"], max(1, values["log.cleaner.threads"])
    if buffer // threads <= _MIN_DEDUPE_BYTES:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size", buffer, f"must be above {_MIN_DEDUPE_BYTES} for each cleaner thread"
        )


def _check_group_protocols(values: Mapping[str, Any]) -> None:
    """Check the settings of the consumer group protocol (Kafka's KafkaConfig and GroupCoordinatorConfig)."""
    protocols = values["group.coordinator.rebalance.protocols"]
    if "classic" not in protocols:
        raise ConfigError(
            "group.coordinator.rebalance.protocols",
            ",".join(protocols),
            "must name classic: that protocol cannot be disabled",
        )
    for setting in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms"):
        low_key, key, high_key = (f"group.consumer.{bound}{setting}" for bound in ("min.", "", "max."))
        low, value, high = values[low_key], values[key], values[high_key]
        if low > high:
            raise ConfigError(high_key, high, f"must be at least {low_key}, {low}")
        if value < low:
            raise ConfigError(key, value, f"must be at least {low_key}, {low}")
        if value > high:
            raise ConfigError(key, value, f"must be at most {high_key}, {high}")
    heartbeat, session = values["group.consumer.heartbeat.interval.ms"], values["group.consumer.session.timeout.ms"]
    if heartbeat >= session:
        raise ConfigError(
            "group.consumer.heartbeat.interval.ms",
            heartbeat,
            f"must be below group.consumer.session.timeout.ms, {session}",
        )


def _check_overrides(text: str) -> None:
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = pair.rpartition(":")
        if not (colon and host.strip() and count.strip().isascii() and count.strip().isdigit()):
            raise ConfigError("max.connections.per.ip.overrides", text, "must be host:count pairs")


def check_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise ConfigError for a change that is too large at once for a running broker."""
    for key in THREAD_KEYS:
        old, new = before[key], after[key]
        if new != old and not old // 2 <= new <= old * 2:
            raise ConfigError(key, new, f"must be from {old // 2} to {old * 2} while it is {old} (half to double)")
    for key, value in after.items():
        if key.endswith(_CONNECTION_LIMITS) and value == 0 != before.get(key):
            raise ConfigError(
                key, 0, "must be at least 1 while the broker runs: no client could connect to alter it again"
            )
