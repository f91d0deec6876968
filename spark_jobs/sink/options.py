"""The options of both sinks: the official connector's names, and the client settings of Kafka's producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gregor.protocol.records import compression
from gregor.protocol.topic_names import name_problem
from gregor.spark_jobs.client.known_settings import IN_SINK, check_known
from gregor.spark_jobs.client.security_settings import warnings_of
from gregor.spark_jobs.client.settings import MAX_INT, ClientSettings
from gregor.spark_jobs.errors import JobError

DEFAULT_STATE_TOPIC = "_gregor_spark_batches"
DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
DEFAULT_BATCH_BYTES = 256 * 1024
"""Kafka's default, 16384, is that of a producer which sends records as they come; these come as the rows of a task."""
DEFAULT_MAX_REQUEST_BYTES = 1024 * 1024
DEFAULT_MAX_ATTEMPTS = 3

_CODECS = {
    "none": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
_OWN = frozenset({"topic", "statetopic", "maxattempts"})
_REFUSED = {
    "transactional.id": "the transactional id is an argument of exactly_once",
    "partitioner.class": "rows have the partition of the column `partition`, or that of Kafka's default partitioner",
    "partitioner.ignore.keys": "rows with a key have the partition of Kafka's default partitioner",
    "key.serializer": "keys are written as the bytes or the text that the column has",
    "value.serializer": "values are written as the bytes or the text that the column has",
    "interceptor.classes": "this producer runs no Java classes",
    "transaction.two.phase.commit.enable": "the sink commits its transactions itself",
}
_FIXED = {"acks": {"all", "-1"}, "enable.idempotence": {"true"}}


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink; it can be pickled."""

    settings: ClientSettings
    topic: str | None = None
    state_topic: str = DEFAULT_STATE_TOPIC
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    batch_bytes: int = DEFAULT_BATCH_BYTES
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES
    codec: int = compression.NONE
    warnings: tuple[str, ...] = ()
    """A line about each setting of the client that has no effect on the sink."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SinkOptions:
        """Return the options; raise JobError for an unknown one, a wrong value and what the sink does not have."""
        check_known(options)
        settings = ClientSettings.from_options(options)
        own = {key.lower(): str(value) for key, value in options.items() if not key.lower().startswith("kafka.")}
        for key in options:
            if not key.lower().startswith("kafka.") and key.lower() not in _OWN:
                raise JobError(f"the sink has no option {key!r}; it has topic, stateTopic, maxAttempts and kafka.*")
        given = dict(settings.other)
        _refuse(given)
        return cls(
            settings,
            topic=_topic("topic", own["topic"]) if "topic" in own else None,
            state_topic=_topic("stateTopic", own.get("statetopic", DEFAULT_STATE_TOPIC)),
            max_attempts=_integer("maxAttempts", own.get("maxattempts"), DEFAULT_MAX_ATTEMPTS),
            transaction_timeout_ms=_integer(
                "kafka.transaction.timeout.ms", given.get("transaction.timeout.ms"), DEFAULT_TRANSACTION_TIMEOUT_MS
            ),
            batch_bytes=_integer("kafka.batch.size", given.get("batch.size"), DEFAULT_BATCH_BYTES),
            max_request_bytes=_integer(
                "kafka.max.request.size", given.get("max.request.size"), DEFAULT_MAX_REQUEST_BYTES
            ),
            codec=_codec(given.get("compression.type", "none")),
            warnings=warnings_of(options, settings, IN_SINK, "what the sink writes"),
        )


def _refuse(given: Mapping[str, str]) -> None:
    for key, reason in _REFUSED.items():
        if key in given:
            raise JobError(f"the sink does not accept kafka.{key}: {reason}")
    for key, values in _FIXED.items():
        if key in given and given[key].lower() not in values:
            raise JobError(
                f"kafka.{key}={given[key]!r} would lose or repeat records; the sink writes with acks=all and sequences"
            )


def _topic(key: str, name: str) -> str:
    problem = name_problem(name)
    if problem is not None:
        raise JobError(f"the option {key}={name!r} names no topic: {problem}")
    return name


def _integer(key: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isdecimal() or not 0 < int(text) <= MAX_INT:
        raise JobError(f"{key}={text!r} is not a whole number from 1 to {MAX_INT}")
    return int(text)


def _codec(name: str) -> int:
    codec = _CODECS.get(name.lower())
    if codec is None:
        raise JobError(f"kafka.compression.type={name!r} is none of {', '.join(_CODECS)}")
    return codec
