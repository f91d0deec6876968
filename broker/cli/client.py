"""Connections of the commands to a broker, through confluent-kafka."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from gregor.broker.cli.client_security import for_librdkafka, token_callback
from gregor.broker.cli.errors import CommandError, kafka_error
from gregor.config.listeners import address_text, is_host
from gregor.config.properties import PropertiesError, load_properties
from gregor.protocol.channel_security import PLAINTEXT

K = TypeVar("K")
V = TypeVar("V")

CONNECT_TIMEOUT_S = 3.0
# From the start of a broker until it listens.
START_TIMEOUT_S = 3.0
METADATA_TIMEOUT_S = 10.0
METADATA_TIMEOUTS_S = (0.3, 0.7, 2.0, 7.0)
"""Parts of METADATA_TIMEOUT_S: a refusal is noticed only at the end of each."""
REQUEST_TIMEOUT_S = 30.0

# The log lines of the client library would mix with the output; it reports errors as exceptions, too.
_SILENT = logging.getLogger("gregor.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

# Errors that end by themselves: the connection ended during the login (librdkafka's own error is in its text), or the
# next token could not be fetched while the last one is still valid.
_PASSING = ("Local: ", "hung up", "Failed to acquire SASL OAUTHBEARER token")

# Settings of the Java client that have another name, or no meaning, in librdkafka.
_RENAMED = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
}
_WITHOUT_GSSAPI = "No provider for SASL mechanism GSSAPI"
"""The text of librdkafka."""
_JAVA_ONLY = frozenset(
    [
        *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"),
        *("max.block.ms", "max.poll.records", "default.api.timeout.ms"),
        *("metadata.max.idle.ms", "socket.connection.setup.timeout.max.ms"),
        *("interceptor.classes", "metric.reporters", "enable.metrics.push", "auto.include.jmx.reporter"),
        *("metrics.num.samples", "metrics.sample.window.ms", "metrics.recording.level"),
    ]
)


class Refusal:
    """The error_cb of a client: it keeps the first error of TLS or of the login. The client library repeats both
    without end, and its calls only time out; Java's clients end."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        is_refusal = error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)
        if self.error is None and is_refusal and not any(text in error.str() for text in _PASSING):
            self.error = error

    def check(self) -> None:
        """Raise the error as KafkaException if there is one."""
        if self.error is not None:
            raise KafkaException(self.error)


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Return host and port of each address in `host:port,[::1]:port,..`; raise CommandError for other text."""
    addresses = []
    for item in text.split(","):
        host, colon, port = item.strip().rpartition("://")[2].rpartition(":")
        is_port = len(port) <= 5 and port.isdecimal() and 0 < int(port) < 65536
        if not colon or not is_port or not is_host(host.strip("[]")):
            raise CommandError(f"'{item.strip()}' is not an address of a broker; give HOST:PORT, e.g. localhost:9092.")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def check_reachable(bootstrap: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Raise CommandError with the cause unless one of these brokers accepts a connection.

    The client library would only time out.
    """
    addresses = parse_bootstrap(bootstrap)
    deadline = time.monotonic() + timeout_s
    while True:
        causes = []
        hopeless = True
        for host, port in addresses:
            try:
                socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
            except socket.gaierror:
                causes.append(f"{host}: unknown host")
            except OSError as error:
                hopeless = False
                causes.append(f"{address_text(host, port)}: {(error.strerror or str(error)).lower()}")
            else:
                return
        if hopeless or time.monotonic() > deadline:
            raise CommandError(
                f"no broker accepts connections ({'; '.join(causes)}). Start one with `gregor start`, or name a "
                "running one with --bootstrap-server HOST:PORT."
            )
        time.sleep(0.1)


def load_file(path: str) -> dict[str, str]:
    """Read a properties file that the user named; raise CommandError if it is unreadable or malformed."""
    try:
        return load_properties(path)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}.") from None
    except PropertiesError as error:
        raise CommandError(f"{path}: {error}.") from None


def client_settings(
    bootstrap: str,
    config_file: str | None = None,
    properties: Mapping[str, str] | None = None,
    client_id: str = "gregor-admin",
) -> dict[str, Any]:
    """Return the settings of a client of confluent-kafka; `properties` have precedence over those of the file."""
    own = {**(load_file(config_file) if config_file else {}), **(properties or {})}
    given = for_librdkafka(own)
    settings: dict[str, Any] = {
        _RENAMED.get(key, key): value.strip() for key, value in given.items() if key not in _JAVA_ONLY
    }
    if "buffer.memory" in settings:  # bytes for Java, KiB for librdkafka
        settings["queue.buffering.max.kbytes"] = max(1, _bytes("buffer.memory", settings.pop("buffer.memory")) // 1024)
    settings["bootstrap.servers"] = bootstrap
    settings.setdefault("client.id", client_id)
    settings["logger"] = _SILENT
    settings["error_cb"] = Refusal()
    if (callback := token_callback(own)) is not None:
        settings["oauth_cb"] = callback
    return settings


def _bytes(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CommandError(f"{key}={text} is not a number of bytes; correct this client setting.") from None


def make_client(kind: Callable[[dict[str, Any]], V], settings: dict[str, Any]) -> V:
    """Return an AdminClient, Producer or Consumer; raise CommandError if it refuses the settings."""
    try:
        return kind(settings)
    except (KafkaException, ValueError, TypeError) as error:
        inner = kafka_error(error) if isinstance(error, KafkaException) else None
        if _WITHOUT_GSSAPI in str(error):
            raise CommandError(
                "sasl.mechanism=GSSAPI: the client library of this command, confluent-kafka, was built without it, as"
                " its wheels are. Build librdkafka with libsasl2, then: pip install --no-binary confluent-kafka"
                " confluent-kafka. The commands with a client of their own, such as acls, need only"
                " pip install 'gregor[kerberos]'."
            ) from None
        raise CommandError(f"{inner.str() if inner else error}. Correct the client settings of the command.") from None


def connect_admin(bootstrap: str, config_file: str | None = None) -> AdminClient:
    """Return an AdminClient, after a broker has accepted a connection, and the login of a client that has one."""
    settings = client_settings(bootstrap, config_file)
    check_reachable(bootstrap)
    admin = make_client(AdminClient, settings)
    if settings.get("security.protocol", PLAINTEXT).upper() != PLAINTEXT:
        fetch_metadata(admin, settings["error_cb"])
    return admin


def fetch_metadata(client: AdminClient | Consumer, refusal: Refusal) -> ClusterMetadata:
    """Return the metadata of all topics; raise KafkaException as soon as a broker refuses the client."""
    problem = KafkaException()
    for timeout_s in METADATA_TIMEOUTS_S:
        try:
            return client.list_topics(timeout=timeout_s)
        except KafkaException as error:
            problem = error
            client.poll(0)  # calls error_cb, which list_topics does not
            refusal.check()
    raise problem


def collect_results(futures: Mapping[K, Future[V]]) -> tuple[dict[K, V], dict[K, KafkaError]]:
    """Wait for the responses of an admin call; return the results, and the broker's errors."""
    done: dict[K, V] = {}
    failed: dict[K, KafkaError] = {}
    for key, future in futures.items():
        try:
            done[key] = future.result()
        except KafkaException as problem:
            error = kafka_error(problem)
            if error is None:
                raise
            failed[key] = error
    return done, failed


def require_results(futures: Mapping[K, Future[V]]) -> dict[K, V]:
    """Wait for the responses of an admin call; return the results, or raise the first error."""
    done, failed = collect_results(futures)
    for error in failed.values():
        raise KafkaException(error)
    return done
