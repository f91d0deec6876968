"""The broker settings, with Kafka's names, types, defaults and ranges.

They are those of Apache Kafka 4.3.1; for ZooKeeper mode, those of 3.9.1. Different on purpose:
``listeners`` (the loopback only), ``log.dir``, ``node.id`` (optional), ``zookeeper.connect`` (empty: the embedded
store). Rows with ``no_effect`` change nothing here and give the reason; ``no_effect.tsv`` has the other keys of 4.3.1.
"""

from __future__ import annotations

from gregor.config.definitions import (
    CLUSTER_WIDE,
    INT_MAX,
    INTERNAL,
    PER_BROKER,
    RETIRED,
    ConfigDef,
)
from gregor.config.listeners import METRICS_LISTENER, METRICS_PASSWORD_FILE, is_metrics_address
from gregor.config.tables.authorizer_keys import AUTHORIZER_SETTINGS
from gregor.config.tables.broker_cluster_keys import CLUSTER_SETTINGS
from gregor.config.tables.broker_group_keys import GROUP_SETTINGS
from gregor.config.tables.broker_log_keys import LOG_SETTINGS
from gregor.config.tables.broker_peer_keys import PEER_SETTINGS
from gregor.config.tables.broker_quota_keys import QUOTA_SETTINGS
from gregor.config.tables.broker_sasl_keys import SASL_SETTINGS
from gregor.config.tables.broker_security_keys import SECURITY_SETTINGS
from gregor.config.tables.password_encoder_keys import PASSWORD_ENCODER_SETTINGS
from gregor.config.validators import Form, at_least, between, one_of

_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DEFAULT_PROTOCOL_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
_W = CLUSTER_WIDE  # rows without `dynamic` are read-only

_ONE_LOOP = "one event loop serves all connections, and each kind of disk work has a thread of its own"
_NO_PURGE = "an answered request leaves the purgatory at once"

_IDENTITY = (
    ConfigDef(
        "node.id", "int", -1, "Number of this broker in its cluster; overrides broker.id.", at_least(0, also=(-1,))
    ),
    ConfigDef("broker.id", "int", -1, "Number of this broker in its cluster; -1: the broker generates one."),
    ConfigDef(
        "broker.id.generation.enable",
        "boolean",
        True,
        "Whether a broker without a number may generate one.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "reserved.broker.max.id",
        "int",
        1000,
        "The largest number that is never generated; generated broker numbers start above it.",
        at_least(0),
        visibility=RETIRED,
    ),
    ConfigDef(
        "broker.rack", "string", None, "Rack or zone of this broker, for clients and for the assignment of replicas."
    ),
)

_NETWORK = (
    ConfigDef(
        "listeners",
        "list",
        ["PLAINTEXT://localhost:9092"],
        "NAME://host:port addresses that the broker binds. An empty host means all addresses, 0.0.0.0 all IPv4 "
        "addresses, [::] all IPv6 addresses, localhost the loopback addresses of IPv4 and IPv6.",
        dynamic=PER_BROKER,
    ),
    ConfigDef("advertised.listeners", "list", None, "Addresses that clients connect to; those of listeners if unset."),
    ConfigDef(
        "listener.security.protocol.map",
        "string",
        _DEFAULT_PROTOCOL_MAP,
        "NAME:PROTOCOL pairs: the security protocol of each listener name.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "inter.broker.listener.name", "string", None, "The listener through which brokers connect to each other."
    ),
    ConfigDef(
        "security.inter.broker.protocol",
        "string",
        "PLAINTEXT",
        "The security protocol of the listener between brokers, when inter.broker.listener.name is unset.",
        one_of(*_SECURITY_PROTOCOLS),
    ),
    ConfigDef(
        "control.plane.listener.name",
        "string",
        None,
        "The listener through which the controller connects to brokers.",
        no_effect="there are no other brokers",
        visibility=RETIRED,
    ),
    ConfigDef("socket.request.max.bytes", "int", 104857600, "Largest request that is accepted.", at_least(1)),
    ConfigDef(
        "socket.listen.backlog.size",
        "int",
        50,
        "Connections that the kernel queues before the broker accepts them.",
        at_least(1),
    ),
    ConfigDef("socket.send.buffer.bytes", "int", 102400, "SO_SNDBUF of a connection; -1: the default of the system."),
    ConfigDef(
        "socket.receive.buffer.bytes", "int", 102400, "SO_RCVBUF of a connection; -1: the default of the system."
    ),
    ConfigDef(
        "max.connections",
        "int",
        INT_MAX,
        "Open connections of this broker, at most. One more on a listener of the brokers alone closes another.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef(
        "max.connections.per.ip", "int", INT_MAX, "Open connections from one address, at most.", at_least(0), dynamic=_W
    ),
    ConfigDef(
        "max.connections.per.ip.overrides",
        "string",
        "",
        "host:count pairs: limits for single addresses instead of max.connections.per.ip.",
        dynamic=_W,
    ),
    ConfigDef(
        "max.connection.creation.rate", "int", INT_MAX, "New connections per second, at most.", at_least(0), dynamic=_W
    ),
    ConfigDef(
        "connections.max.idle.ms",
        "long",
        600000,
        "Time without a request after which a connection is closed; < 0: never.",
    ),
    ConfigDef(
        "queued.max.requests",
        "int",
        500,
        "Requests that were read and wait for an earlier request of their connection, at most; at this number "
        "the broker reads no request behind an unanswered one.",
        at_least(1),
    ),
    ConfigDef(
        "queued.max.request.bytes",
        "long",
        -1,
        "Bytes of requests that were read and not yet handled, over all connections; above it the broker stops "
        "reading. -1: 64 MB.",
    ),
    ConfigDef(
        "num.network.threads", "int", 3, "Threads that serve connections.", at_least(1), dynamic=_W, no_effect=_ONE_LOOP
    ),
    ConfigDef(
        "num.io.threads", "int", 8, "Threads that answer requests.", at_least(1), dynamic=_W, no_effect=_ONE_LOOP
    ),
    ConfigDef(
        "background.threads",
        "int",
        10,
        "Threads for deletion and the like.",
        at_least(1),
        dynamic=_W,
        no_effect=_ONE_LOOP,
    ),
    ConfigDef(
        "request.timeout.ms",
        "int",
        30000,
        "How long this broker waits for the response of another broker to a request about transactions.",
    ),
    ConfigDef(
        "max.request.partition.size.limit",
        "int",
        2000,
        "Partitions in one DescribeTopicPartitions response, at most.",
        at_least(1),
    ),
    ConfigDef(
        "gregor.allow.unprotected",
        "boolean",
        False,
        "Whether the broker starts, with a warning, although authorizer.class.name requests a protection that gregor "
        "does not have.",
        visibility=INTERNAL,
    ),
    ConfigDef(
        "gregor.rebalance.history.enable",
        "boolean",
        True,
        "Whether the broker keeps the last 512 rebalances of each group that it coordinates, with their causes, in the "
        "compacted topic __gregor_rebalances, which it creates at the first one. gregor groups --history shows them.",
        visibility=INTERNAL,
    ),
    ConfigDef(
        "gregor.session.watcher",
        "boolean",
        True,
        "Whether a small process beside the broker closes its ZooKeeper session when the broker dies, so that its "
        "partitions get other leaders at once; false: when the session has timed out.",
        visibility=INTERNAL,
    ),
)

_METRICS = (
    ConfigDef(
        METRICS_LISTENER,
        "string",
        "",
        "Address of the HTTP listener with /metrics, /health/live and /health/ready: a port, which serves this machine "
        "only, or host:port, of which an empty host means all addresses. Empty: there is none. The listener has no "
        "TLS; an address that other machines reach needs gregor.metrics.password.file.",
        Form(is_metrics_address, "empty, a port from 0 to 65535, or host:port"),
        visibility=INTERNAL,
    ),
    ConfigDef(
        METRICS_PASSWORD_FILE,
        "string",
        "",
        "File of mode 0600 with one line USER:PASSWORD, which a reader of /metrics must send (basic authentication). "
        "Empty: everyone on this machine may read it.",
        visibility=INTERNAL,
    ),
    ConfigDef(
        "telemetry.max.bytes",
        "int",
        1048576,
        "Bytes of metrics, compressed, that a client may push at once.",
        at_least(1),
    ),
    ConfigDef(
        "gregor.log.format",
        "string",
        "text",
        "Form of the log on standard error: text, or json, one object per line.",
        one_of("text", "json"),
        visibility=INTERNAL,
    ),
    ConfigDef(
        "gregor.slow.request.log.ms",
        "long",
        -1,
        "Time from which on a request is written to the log as a slow one, at most 100 in a second; -1: none is.",
        at_least(0, also=(-1,)),
        dynamic=_W,
        visibility=INTERNAL,
    ),
)

_TOPICS = (
    ConfigDef(
        "num.partitions", "int", 1, "Partitions of a topic that is created without a number of partitions.", at_least(1)
    ),
    ConfigDef(
        "default.replication.factor", "int", 1, "Replicas of a topic that is created without a replication factor."
    ),
    ConfigDef(
        "auto.create.topics.enable", "boolean", True, "Whether a metadata request for an unknown topic may create it."
    ),
    ConfigDef("delete.topic.enable", "boolean", True, "Whether topics may be deleted."),
    ConfigDef(
        "min.insync.replicas",
        "int",
        1,
        "In-sync replicas that a write with acks=all needs, at least.",
        at_least(1),
        dynamic=_W,
    ),
    ConfigDef(
        "unclean.leader.election.enable",
        "boolean",
        False,
        "Whether a replica that is not in sync may lead when no in-sync replica is alive; records can be lost.",
        dynamic=_W,
    ),
    ConfigDef(
        "message.max.bytes",
        "int",
        1048588,
        "Largest record batch (as stored, compressed) that is accepted.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef(
        "compression.type",
        "string",
        "producer",
        "Codec of stored batches; producer keeps the codec of the producer.",
        one_of(*_COMPRESSIONS),
        dynamic=_W,
    ),
    ConfigDef(
        "compression.gzip.level",
        "int",
        -1,
        "gzip level; -1: the default of gzip.",
        between(1, 9, also=(-1,)),
        dynamic=_W,
    ),
    ConfigDef("compression.lz4.level", "int", 9, "lz4 level.", between(1, 17), dynamic=_W),
    ConfigDef("compression.zstd.level", "int", 3, "zstd level.", between(-131072, 22), dynamic=_W),
)

_FETCH_AND_PRODUCERS = (
    ConfigDef("fetch.max.bytes", "int", 57671680, "Bytes of records in one fetch response, at most.", at_least(1024)),
    ConfigDef(
        "max.incremental.fetch.session.cache.slots",
        "int",
        1000,
        "Incremental fetch sessions that the broker keeps, at most.",
        at_least(0),
    ),
    ConfigDef(
        "fetch.purgatory.purge.interval.requests",
        "int",
        1000,
        "Delayed fetches between two clean-ups of the purgatory.",
        no_effect=_NO_PURGE,
    ),
    ConfigDef(
        "producer.purgatory.purge.interval.requests",
        "int",
        1000,
        "Delayed produce requests between two clean-ups of the purgatory.",
        no_effect=_NO_PURGE,
    ),
    ConfigDef(
        "delete.records.purgatory.purge.interval.requests",
        "int",
        1,
        "Delayed record deletions between two clean-ups of the purgatory.",
        no_effect=_NO_PURGE,
    ),
    ConfigDef(
        "producer.id.expiration.ms",
        "int",
        86400000,
        "Time without a batch after which the state of an idempotent producer is removed.",
        at_least(1),
        dynamic=_W,
    ),
    ConfigDef(
        "producer.id.expiration.check.interval.ms",
        "int",
        600000,
        "How often expired producer states are removed.",
        at_least(1),
        visibility=INTERNAL,
    ),
)

BROKER_KEYS: dict[str, ConfigDef] = {
    definition.key: definition
    for group in (
        _IDENTITY,
        _NETWORK,
        _METRICS,
        _TOPICS,
        LOG_SETTINGS,
        _FETCH_AND_PRODUCERS,
        GROUP_SETTINGS,
        CLUSTER_SETTINGS,
        QUOTA_SETTINGS,
        AUTHORIZER_SETTINGS,
        PEER_SETTINGS,
        SASL_SETTINGS,
        SECURITY_SETTINGS,
        PASSWORD_ENCODER_SETTINGS,
    )
    for definition in group
}

# Keys of one setting, the first of highest rank; a later one counts only while the earlier ones are unset. (node.id
# and broker.id, log.dirs and log.dir have such ranks too, but are not described as synonyms.)
BROKER_SYNONYMS: tuple[tuple[str, ...], ...] = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)


def broker_synonyms(key: str) -> tuple[str, ...]:
    """Return the broker keys that set the same as ``key``, by falling rank; ``(key,)`` if there are no others."""
    for group in BROKER_SYNONYMS:
        if key in group:
            return group
    return (key,)
