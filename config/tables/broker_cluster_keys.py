"""Broker settings of clusters: the metadata store, transactions, replication. Part of ``broker_keys.BROKER_KEYS``."""

from __future__ import annotations

from gregor.config.definitions import CLUSTER_WIDE, INTERNAL, LONG_MAX, RETIRED, ConfigDef
from gregor.config.validators import at_least

_W = CLUSTER_WIDE  # rows without `dynamic` are read-only

_NO_TRANSACTIONS = "gregor has no transactions yet"

_METADATA_STORE = (
    ConfigDef(
        "zookeeper.connect",
        "string",
        "",
        "host:port[,host:port][/chroot] of the ZooKeeper ensemble; empty keeps the metadata in an embedded store.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "zookeeper.session.timeout.ms",
        "int",
        18000,
        "Time without a sign of life after which a broker loses its registration.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "zookeeper.connection.timeout.ms",
        "int",
        None,
        "How long to wait for the first connection; unset takes zookeeper.session.timeout.ms.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "zookeeper.set.acl",
        "boolean",
        False,
        "Whether nodes are created with access control lists.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "zookeeper.max.in.flight.requests",
        "int",
        10,
        "Unanswered requests to ZooKeeper before waiting.",
        at_least(1),
        visibility=RETIRED,
    ),
)

_TRANSACTIONS = (
    ConfigDef(
        "transaction.max.timeout.ms",
        "int",
        900000,
        "Longest transaction timeout a producer may ask.",
        at_least(1),
        no_effect=_NO_TRANSACTIONS,
    ),
    ConfigDef(
        "transactional.id.expiration.ms",
        "int",
        604800000,
        "An idle transactional id is forgotten after it.",
        at_least(1),
        no_effect=_NO_TRANSACTIONS,
    ),
    ConfigDef(
        "transaction.state.log.replication.factor",
        "short",
        3,
        "Replicas of __transaction_state.",
        at_least(1),
        no_effect=_NO_TRANSACTIONS,
    ),
    ConfigDef(
        "transaction.state.log.num.partitions",
        "int",
        50,
        "Partitions of __transaction_state.",
        at_least(1),
        no_effect=_NO_TRANSACTIONS,
    ),
    ConfigDef(
        "transaction.state.log.segment.bytes",
        "int",
        104857600,
        "Segment size of __transaction_state.",
        at_least(1),
        no_effect=_NO_TRANSACTIONS,
    ),
    ConfigDef(
        "transaction.state.log.min.isr",
        "int",
        2,
        "min.insync.replicas of __transaction_state.",
        at_least(1),
        no_effect=_NO_TRANSACTIONS,
    ),
    ConfigDef(
        "transaction.state.log.load.buffer.size",
        "int",
        5242880,
        "Bytes per read when one loads.",
        at_least(1),
        no_effect=_NO_TRANSACTIONS,
    ),
    ConfigDef(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "int",
        10000,
        "How often overdue transactions are aborted.",
        at_least(1),
        no_effect=_NO_TRANSACTIONS,
    ),
    ConfigDef(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "int",
        3600000,
        "How often expired transactional ids are removed.",
        at_least(1),
        no_effect=_NO_TRANSACTIONS,
    ),
    ConfigDef(
        "transaction.partition.verification.enable",
        "boolean",
        True,
        "Whether a partition must be part of the transaction before records are taken.",
        dynamic=_W,
        no_effect=_NO_TRANSACTIONS,
    ),
)

_REPLICATION = (
    ConfigDef(
        "replica.lag.time.max.ms",
        "long",
        30000,
        "Time behind the leader after which a follower leaves the in-sync replicas.",
    ),
    ConfigDef("replica.fetch.max.bytes", "int", 1048576, "Bytes a follower asks for per partition.", at_least(0)),
    ConfigDef("replica.fetch.response.max.bytes", "int", 10485760, "Bytes a follower asks for in all.", at_least(0)),
    ConfigDef("replica.fetch.min.bytes", "int", 1, "Bytes a follower's fetch waits for."),
    ConfigDef("replica.fetch.wait.max.ms", "int", 500, "Longest a follower's fetch waits."),
    ConfigDef("replica.fetch.backoff.ms", "int", 1000, "Pause after a failed fetch.", at_least(0)),
    ConfigDef("replica.socket.timeout.ms", "int", 30000, "Socket timeout of a follower's requests."),
    ConfigDef("replica.socket.receive.buffer.bytes", "int", 65536, "SO_RCVBUF of a follower's connections."),
    ConfigDef("num.replica.fetchers", "int", 1, "Fetchers per leader broker.", at_least(1), dynamic=_W),
    ConfigDef(
        "replica.selector.class",
        "string",
        None,
        "Picks the replica that a consumer reads from: the leader, or Kafka's RackAwareReplicaSelector.",
    ),
    ConfigDef(
        "leader.replication.throttled.rate",
        "long",
        LONG_MAX,
        "Bytes a second that a leader sends of throttled replicas.",
        at_least(0),
        dynamic=_W,
        visibility=INTERNAL,
    ),
    ConfigDef(
        "follower.replication.throttled.rate",
        "long",
        LONG_MAX,
        "Bytes a second that a follower takes of throttled replicas.",
        at_least(0),
        dynamic=_W,
        visibility=INTERNAL,
    ),
    ConfigDef("replica.high.watermark.checkpoint.interval.ms", "long", 5000, "How often high watermarks are saved."),
    ConfigDef("controller.socket.timeout.ms", "int", 30000, "Socket timeout from controller to broker."),
    ConfigDef("auto.leader.rebalance.enable", "boolean", True, "Whether preferred leaders are restored by and by."),
    ConfigDef("leader.imbalance.check.interval.seconds", "long", 300, "How often that is looked at.", at_least(1)),
    ConfigDef(
        "leader.imbalance.per.broker.percentage",
        "int",
        10,
        "Share of foreign leaders that sets it off.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "controlled.shutdown.enable", "boolean", True, "Whether other brokers become leaders before this one stops."
    ),
    ConfigDef("controlled.shutdown.max.retries", "int", 3, "Attempts at that.", visibility=RETIRED),
    ConfigDef("controlled.shutdown.retry.backoff.ms", "long", 5000, "Pause between them.", visibility=RETIRED),
)

CLUSTER_SETTINGS = (*_METADATA_STORE, *_TRANSACTIONS, *_REPLICATION)
