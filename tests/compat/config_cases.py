"""Changes of settings for gregor and Apache Kafka, and the cases in which gregor's answer differs on purpose."""

from __future__ import annotations

from typing import NamedTuple

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


class Change(NamedTuple):
    """One resource of an IncrementalAlterConfigs request."""

    kind: int
    name: str
    configs: tuple[tuple[str, int, str | None], ...]


def _sets(kind: int, name: str, *pairs: str) -> list[Change]:
    """`key=value` sets, in a request of its own; `key` alone deletes; `key+=value` appends, `key-=value` subtracts."""
    changes = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        operation = {"+": APPEND, "-": SUBTRACT}.get(key[-1:], SET) if equals else DELETE
        if operation in (APPEND, SUBTRACT):
            key = key[:-1]
        changes.append(Change(kind, name, ((key, operation, value if equals else None),)))
    return changes


CHANGES = [
    *_sets(
        TOPIC,
        "t",
        *("no.such.key=1", "no.such.key", "retention.ms=soon", "retention.ms=", "retention.ms", "retention.ms+=1"),
        *("cleanup.policy+=shred", "cleanup.policy-=delete", "cleanup.policy", "cleanup.policy+=compact"),
        *("cleanup.policy=delete,delete", "cleanup.policy=", "cleanup.policy", "segment.bytes=1", "flush.ms=1000"),
        *("remote.storage.enable=true", "message.format.version=3.0", "unclean.leader.election.enable=maybe"),
        *("compression.type=lzma", "max.message.bytes=12345", "internal.segment.bytes=2000000", "flush.messages=0"),
        *("leader.replication.throttled.replicas=0:0", "leader.replication.throttled.replicas=nonsense"),
        *("min.cleanable.dirty.ratio=0.25", "min.cleanable.dirty.ratio=1.5", "local.retention.ms=99999"),
    ),
    Change(TOPIC, "t", (("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5"))),
    Change(TOPIC, "t", (("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
    Change(TOPIC, "t", (("retention.ms", SET, None),)),
    Change(TOPIC, "t", (("retention.ms", 9, "1"),)),
    Change(TOPIC, "t", (("retention.ms", -1, "1"),)),
    Change(TOPIC, "t", (("", SET, "1"),)),
    Change(TOPIC, "t", ()),
    *_sets(TOPIC, "absent", "retention.ms=1", "retention.ms=x", "no.such.key=1"),
    *_sets(TOPIC, "a/b", "retention.ms=1"),
    *_sets(TOPIC, "", "retention.ms=1"),
    *_sets(
        BROKER,
        "0",
        *("no.such.key=1", "no.such.key", "broker.id=1", "num.partitions=1", "num.partitions", "queued.max.requests=5"),
        *("advertised.listeners=PLAINTEXT://x:1", "ssl.keystore.location=x", "log.retention.hours=1"),
        *("listener.name.plaintext.ssl.keystore.location=/x", "listener.name.plaintext.ssl.keystore.location"),
        "max.connections=0",  # before the listener has a limit of its own, the only one that Apache Kafka checks then
        *("listener.name.plaintext.max.connections=77", "listener.name.plaintext.message.max.bytes=5"),
        *("listener.name.plaintext.message.max.bytes", "log.retention.ms=0", "log.retention.ms=-1", "log.roll.ms=0"),
        *("log.cleaner.threads=9", "num.io.threads=100", "num.io.threads=1", "num.io.threads=9"),
        *("background.threads=0", "num.network.threads=4", "max.connections.per.ip=0"),
        *("max.connections.per.ip.overrides=nonsense", "max.connections.per.ip.overrides=127.0.0.1:x"),
        *("max.connections.per.ip.overrides=127.0.0.1:500", "max.connection.creation.rate=0"),
        *("listener.name.plaintext.max.connections=0", "max.connections.per.ip.overrides=::1:0"),
        *("max.connection.creation.rate=1000", "log.segment.bytes=5000000", "sasl.jaas.config=x", "sasl.jaas.config"),
        *("sasl.kerberos.min.time.before.relogin=58000", "sasl.kerberos.min.time.before.relogin=soon"),
        *("sasl.login.refresh.window.jitter=0.1", "sasl.login.refresh.buffer.seconds"),
        *("listener.security.protocol.map=PLAINTEXT:SSL,CONTROLLER:PLAINTEXT", "principal.builder.class=x.Y"),
        *("remote.log.reader.threads=11", "cordoned.log.dirs=*", "cordoned.log.dirs", "ssl.client.auth=none"),
        "ssl.client.auth",
        *("log.cleaner.dedupe.buffer.size=1", "log.cleaner.io.buffer.size=1", "log.cleaner.io.buffer.load.factor=0.8"),
        *("leader.replication.throttled.rate=1000", "follower.replication.throttled.rate=-1"),
        *("replica.alter.log.dirs.io.max.bytes.per.second=5000", "replica.alter.log.dirs.io.max.bytes.per.second=x"),
        *("message.max.bytes+=1", "min.insync.replicas=2", "min.insync.replicas"),
    ),
    Change(BROKER, "0", (("message.max.bytes", SET, None),)),
    Change(BROKER, "0", (("message.max.bytes", 9, "1"),)),
    Change(BROKER, "0", ()),
    *_sets(BROKER, "9", "message.max.bytes=1"),
    *_sets(BROKER, "zero", "message.max.bytes=1"),
    *_sets(BROKER, " 0", "message.max.bytes=1"),
    *_sets(BROKER, "-1", "message.max.bytes=1"),
    *_sets(
        BROKER,
        "",
        *("no.such.key=1", "no.such.key", "message.max.bytes=many", "listeners=PLAINTEXT://x:1"),
        *("ssl.keystore.location=x", "listener.name.plaintext.ssl.keystore.type=PEM", "background.threads=11"),
        "sasl.kerberos.min.time.before.relogin=58000",
        *("listener.name.plaintext.max.connections=78", "num.network.threads=100", "num.network.threads"),
        "num.replica.fetchers=100",
        *("num.recovery.threads.per.data.dir=100", "max.connections=999", "metric.reporters=no.such.Class"),
        *("metric.reporters", "config.providers=", "producer.id.expiration.ms=5000", "log.segment.bytes=6000000"),
        *("transaction.partition.verification.enable=false", "log.cleanup.policy+=compact", "log.cleanup.policy"),
        *("unclean.leader.election.enable=true", "remote.log.manager.copy.max.bytes.per.second=1000"),
        *("log.local.retention.ms=1000", "group.consumer.assignment.interval.ms=2000", "cordoned.log.dirs="),
        *("group.coordinator.cached.buffer.max.bytes=600000", "follower.fetch.last.tiered.offset.enable=true"),
        *("ssl.client.auth=none", "min.insync.replicas=2", "compression.zstd.level=5", "compression.gzip.level=0"),
    ),
    Change(
        BROKER, "", (("log.cleaner.min.compaction.lag.ms", SET, "10"), ("log.cleaner.max.compaction.lag.ms", SET, "5"))
    ),
    *_sets(BROKER, "", "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    *_sets(
        LOGGER, "0", "root=INFO", "root", "no.such.logger=INFO", "root=LOUD", "root=OFF", "root+=INFO", "root-=INFO"
    ),
    Change(LOGGER, "0", (("root", SET, None),)),
    Change(LOGGER, "0", (("root", 9, "INFO"),)),
    Change(LOGGER, "0", ()),
    *_sets(LOGGER, "1", "root=INFO"),
    *_sets(LOGGER, "x", "root=INFO"),
    *_sets(LOGGER, "", "root=INFO"),
    *_sets(
        GROUP,
        "g",
        *(
            "consumer.session.timeout.ms=50000",
            "consumer.session.timeout.ms=1",
            "consumer.heartbeat.interval.ms=999999",
        ),
        *("no.such.key=1", "no.such.key", "consumer.session.timeout.ms=x", "consumer.session.timeout.ms+=1"),
        *("share.auto.offset.reset=nowhere", "share.auto.offset.reset=earliest", "share.isolation.level=x"),
        *(
            "share.auto.offset.reset=by_duration:PT1H",
            "streams.num.standby.replicas=9",
            "streams.num.standby.replicas=2",
        ),
        *("share.record.lock.duration.ms=1", "streams.initial.rebalance.delay.ms=-1", "share.delivery.count.limit=99"),
        *("share.partition.max.record.locks=1", "consumer.assignment.interval.ms=99999999"),
        *("share.renew.acknowledge.enable=perhaps", "consumer.session.timeout.ms"),
    ),
    *_sets(GROUP, "", "consumer.session.timeout.ms=50000"),
    *_sets(
        METRICS,
        "m",
        *("interval.ms=1000", "interval.ms=1", "metrics=a,b", "metrics+=c", "match=client_id=x", "match=nonsense"),
        *("match=client_id=[", "match=no_such=x", "no.such=x", "interval.ms=x", "metrics=", "metrics=*", "interval.ms"),
        "interval.ms=9999999999",
    ),
    *_sets(METRICS, "", "interval.ms=1000"),
    *_sets(METRICS, "gone", "interval.ms=1000", "interval.ms"),
    *_sets(1, "x", "a=1"),
    *_sets(99, "x", "a=1"),
]

_PLUGIN = "a key that nobody knows is refused: gregor has no plug-ins that could read it, so it is a slip of the pen"
_NO_CLASSES = "kept, with a warning: gregor loads no classes, so it cannot say that one is missing"

# (type, resource, key, value) -> gregor's error code, the reason why it is another than Apache Kafka's.
OTHER_CODES: dict[tuple[int, str, str, str | None], tuple[int, str]] = {
    (BROKER, "0", "no.such.key", "1"): (42, _PLUGIN),
    (BROKER, "", "no.such.key", "1"): (42, _PLUGIN),
    (BROKER, "0", "listener.name.plaintext.message.max.bytes", "5"): (42, "no listener has a limit of its own there"),
    (BROKER, "0", "cordoned.log.dirs", "*"): (42, "no folder is spared in gregor"),
    (BROKER, "", "metric.reporters", "no.such.Class"): (0, _NO_CLASSES),
    (BROKER, "", "log.cleaner.min.compaction.lag.ms", "10"): (
        42,
        "above its maximum; Apache Kafka takes it and then refuses each change of a topic",
    ),
}
