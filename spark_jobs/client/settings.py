"""The settings of a client, from options with the prefix `kafka.`, with the names and defaults of Kafka's consumer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gregor.config.definitions import ConfigError
from gregor.protocol.channel_security import ChannelSecurity
from gregor.protocol.client_security import SECRETS, security_of_client
from gregor.protocol.errors import ErrorCode
from gregor.spark_jobs.bootstrap import parse_servers
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.known_settings import PREFIX
from gregor.spark_jobs.errors import JobError

MIN_FETCH_WAIT_MS = 500

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
MAX_INT = 2**31 - 1

_INTEGERS = {
    "request.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "default_api_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
    "fetch.max.bytes": "fetch_max_bytes",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "fetch.max.wait.ms": "fetch_max_wait_ms",
}
_SECURITY_KEYS = ("security.", "ssl.", "sasl.")
_POSITIVE = frozenset({"request.timeout.ms", "default.api.timeout.ms", "socket.connection.setup.timeout.ms"})


@dataclass(frozen=True)
class ClientSettings:
    """The settings of one client; it can be pickled.

    `other` has the settings that have no field here: those of a producer, and those without an effect in this client,
    for which known_settings has the reasons. `security_texts` has security.protocol, ssl.* and sasl.*; they may be
    secrets.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "gregor-spark"
    group_id: str | None = None
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    isolation_level: str = READ_UNCOMMITTED
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True
    other: tuple[tuple[str, str], ...] = ()
    security_texts: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)

    @property
    def security(self) -> ChannelSecurity:
        """Return the security of connections; it is made once in a process. Raises KafkaFailure."""
        return _security(self.security_texts)

    @property
    def fetch_wait_ms(self) -> int:
        """Return how long a broker may wait before it answers a fetch without records: fetch.max.wait.ms, but not less
        than its default, as brokers with tiered storage answer so when a read has lasted longer."""
        return min(max(self.fetch_max_wait_ms, MIN_FETCH_WAIT_MS), self.request_timeout_ms // 2)

    @property
    def read_committed(self) -> bool:
        """Return whether records of open and aborted transactions are left out."""
        return self.isolation_level == READ_COMMITTED

    @classmethod
    def from_options(cls, options: Mapping[str, str], needs_servers: bool = True) -> ClientSettings:
        """Return the settings of the options with the prefix `kafka.`; the others are not read.

        Without `needs_servers` they may be those of a reader that has no cluster. Raise JobError for a wrong value, and
        KafkaFailure for security that this client does not have.
        """
        given = {
            key.lower().removeprefix(PREFIX): str(value).strip()
            for key, value in options.items()
            if key.lower().startswith(PREFIX)
        }
        security = {key: given.pop(key) for key in sorted(given) if key.startswith(_SECURITY_KEYS)}
        _security(tuple(security.items()))
        servers = given.pop("bootstrap.servers", "")
        if not servers and needs_servers:
            raise JobError("the option kafka.bootstrap.servers is missing; give HOST:PORT,.. of the cluster's brokers")
        values: dict[str, object] = {"bootstrap_servers": tuple(parse_servers(servers)) if servers else ()}
        for key, field in _INTEGERS.items():
            if key in given:
                values[field] = _integer(key, given.pop(key))
        for key, field in (("client.id", "client_id"), ("group.id", "group_id")):
            if key in given:
                values[field] = given.pop(key)
        if "isolation.level" in given:
            values["isolation_level"] = _one_of("isolation.level", given.pop("isolation.level"))
        if "check.crcs" in given:
            values["check_crcs"] = _boolean("check.crcs", given.pop("check.crcs"))
        return cls(**values, other=tuple(sorted(given.items())), security_texts=tuple(security.items()))  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _security(texts: tuple[tuple[str, str], ...]) -> ChannelSecurity:
    try:
        return security_of_client(dict(texts))
    except ConfigError as error:
        shown = "(hidden)" if error.key in SECRETS else error.value
        raise KafkaFailure(ErrorCode.SECURITY_DISABLED, f"kafka.{error.key}={shown}: {error.message}") from None


def _integer(key: str, text: str) -> int:
    lowest = 1 if key in _POSITIVE else 0
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not lowest <= value <= MAX_INT:
        raise JobError(f"kafka.{key}={text!r} is not a whole number from {lowest} to {MAX_INT}")
    return value


def _one_of(key: str, text: str) -> str:
    levels = (READ_UNCOMMITTED, READ_COMMITTED)
    if text.lower() not in levels:
        raise JobError(f"kafka.{key}={text!r} is neither {levels[0]} nor {levels[1]}")
    return text.lower()


def _boolean(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise JobError(f"kafka.{key}={text!r} is neither true nor false")
    return text.lower() == "true"
