"""Broker settings of clusters: the metadata store, transactions, replication. Part of ``broker_keys.BROKER_KEYS``."""

from __future__ import annotations

from gregor.config.definitions import CLUSTER_WIDE, INTERNAL, LONG_MAX, RETIRED, ConfigDef
from gregor.config.validators import at_least

_W = CLUSTER_WIDE  # rows without `dynamic` are read-only

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
        "Time without a heartbeat after which ZooKeeper expires the session and the broker loses its registration.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "zookeeper.connection.timeout.ms",
        "int",
        None,
        "How long a starting broker waits for the first connection to ZooKeeper; unset: zookeeper.session.timeout.ms.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "zookeeper.set.acl",
        "boolean",
        False,
        "Whether ZooKeeper nodes are created with access control lists.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "zookeeper.max.in.flight.requests",
        "int",
        10,
        "Requests to ZooKeeper without a response yet, at most.",
        at_least(1),
        visibility=RETIRED,
    ),
)

_TRANSACTIONS = (
    ConfigDef(
        "add.partitions.to.txn.retry.backoff.ms",
        "int",
        20,
        "Pause before a partition of a produce request is added to a transaction again, as the one before is ending.",
        at_least(1),
    ),
    ConfigDef(
        "add.partitions.to.txn.retry.backoff.max.ms",
        "int",
        100,
        "Time for which the addition of a partition to a transaction is repeated.",
        at_least(0),
    ),
    ConfigDef(
        "transaction.max.timeout.ms",
        "int",
        900000,
        "Longest transaction timeout that a producer may request.",
        at_least(1),
    ),
    ConfigDef(
        "transactional.id.expiration.ms",
        "int",
        604800000,
        "Time without a transaction after which a transactional id expires.",
        at_least(1),
    ),
    ConfigDef(
        "transaction.state.log.replication.factor",
        "short",
        3,
        "Replicas of __transaction_state.",
        at_least(1),
    ),
    ConfigDef(
        "transaction.state.log.num.partitions",
        "int",
        50,
        "Partitions of __transaction_state.",
        at_least(1),
    ),
    ConfigDef(
        "transaction.state.log.segment.bytes",
        "int",
        104857600,
        "Segment size of __transaction_state.",
        at_least(1),
    ),
    ConfigDef(
        "transaction.state.log.min.isr",
        "int",
        2,
        "min.insync.replicas of __transaction_state.",
        at_least(1),
    ),
    ConfigDef(
        "transaction.state.log.load.buffer.size",
        "int",
        5242880,
        "Bytes per read while a transaction coordinator loads its transactions.",
        at_least(1),
    ),
    ConfigDef(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "int",
        10000,
        "Pause before the abort of an overdue transaction is repeated, if it could not be written.",
        at_least(1),
    ),
    ConfigDef(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "int",
        3600000,
        "How often expired transactional ids are removed.",
        at_least(1),
    ),
    ConfigDef(
        "transaction.partition.verification.enable",
        "boolean",
        True,
        "Whether transactional records are refused for a partition that is not part of the transaction.",
        dynamic=_W,
    ),
)

_REPLICATION = (
    ConfigDef(
        "replica.lag.time.max.ms",
        "long",
        30000,
        "Time behind the leader after which a follower leaves the in-sync replicas.",
    ),
    ConfigDef(
        "replica.fetch.max.bytes", "int", 1048576, "Bytes that a follower requests per partition, at most.", at_least(0)
    ),
    ConfigDef(
        "replica.fetch.response.max.bytes",
        "int",
        10485760,
        "Bytes that a follower requests in one fetch, at most.",
        at_least(0),
    ),
    ConfigDef("replica.fetch.min.bytes", "int", 1, "Bytes for which a fetch of a follower waits."),
    ConfigDef("replica.fetch.wait.max.ms", "int", 500, "Longest time that a fetch of a follower waits."),
    ConfigDef("replica.fetch.backoff.ms", "int", 1000, "Pause after a failed fetch.", at_least(0)),
    ConfigDef("replica.socket.timeout.ms", "int", 30000, "Socket timeout of a follower's requests."),
    ConfigDef("replica.socket.receive.buffer.bytes", "int", 65536, "SO_RCVBUF of a follower's connections."),
    ConfigDef(
        "num.replica.fetchers", "int", 1, "Fetchers per broker that this broker fetches from.", at_least(1), dynamic=_W
    ),
    ConfigDef(
        "replica.selector.class",
        "string",
        None,
        "Selects the replica that a consumer fetches from: unset, the leader; Kafka's RackAwareReplicaSelector, one in "
        "the rack of the consumer.",
    ),
    ConfigDef(
        "leader.replication.throttled.rate",
        "long",
        LONG_MAX,
        "Bytes per second of throttled replicas that a leader sends, at most.",
        at_least(0),
        dynamic=_W,
        visibility=INTERNAL,
    ),
    ConfigDef(
        "follower.replication.throttled.rate",
        "long",
        LONG_MAX,
        "Bytes per second of throttled replicas that a follower fetches, at most.",
        at_least(0),
        dynamic=_W,
        visibility=INTERNAL,
    ),
    ConfigDef(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        5000,
        "How often high watermarks are written to their checkpoint file.",
    ),
    ConfigDef(
        "controller.socket.timeout.ms", "int", 30000, "Socket timeout of requests between controller and brokers."
    ),
    ConfigDef(
        "auto.leader.rebalance.enable",
        "boolean",
        True,
        "Whether the controller periodically elects the preferred leaders again.",
    ),
    ConfigDef(
        "leader.imbalance.check.interval.seconds",
        "long",
        300,
        "How often the controller checks whether leaders are their partitions' preferred ones.",
        at_least(1),
    ),
    ConfigDef(
        "leader.imbalance.per.broker.percentage",
        "int",
        10,
        "Share of a broker's preferred leaderships that others hold, in percent, above which they are elected again.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "controlled.shutdown.enable",
        "boolean",
        True,
        "Whether a stopping broker first moves its leaderships to other brokers.",
    ),
    ConfigDef("controlled.shutdown.max.retries", "int", 3, "Attempts of a controlled shutdown.", visibility=RETIRED),
    ConfigDef(
        "controlled.shutdown.retry.backoff.ms",
        "long",
        5000,
        "Pause between two attempts of a controlled shutdown.",
        visibility=RETIRED,
    ),
)

CLUSTER_SETTINGS = (*_METADATA_STORE, *_TRANSACTIONS, *_REPLICATION)
