"""The names of the settings of Kafka's clients, and why some of them have no effect in a source or a sink here.

The names are those of the methods configNames() of ConsumerConfig, ProducerConfig and AdminClientConfig in Apache Kafka
3.9.1 (the client in Spark's connector), 4.3.1 and 4.4.0.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from gregor.spark_jobs.errors import JobError

PREFIX = "kafka."


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SECURITY = _names("""
    sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol security.providers ssl.cipher.suites ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
""")
CONSUMER = _names("""
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs enable.auto.commit
    exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms internal.leave.group.on.close
    internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer max.partition.fetch.bytes
    max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms share.acknowledgement.mode
    share.acquire.mode value.deserializer
""")
"""Those that only consumers have."""
PRODUCER = _names("""
    acks batch.size buffer.memory buffer.memory.allocation.strategy compression.gzip.level compression.lz4.level
    compression.type compression.zstd.level delivery.timeout.ms enable.idempotence key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys partitioner.rack.aware transaction.timeout.ms transaction.two.phase.commit.enable
    transactional.id value.serializer
""")
"""Those that only producers have."""
SHARED = _names("""
    auto.include.jmx.reporter bootstrap.controllers bootstrap.resolve.timeout.ms bootstrap.servers client.dns.lookup
    client.id client.rack config.providers connections.max.idle.ms default.api.timeout.ms enable.metrics.push
    interceptor.classes metadata.cluster.check.enable metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms
    retry.backoff.ms send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
""")
"""Those of more than one kind of client, or of admin clients."""
KNOWN = SECURITY | CONSUMER | PRODUCER | SHARED

_OWN_RETRIES = "failed requests are repeated until kafka.default.api.timeout.ms, after pauses of kafka.retry.backoff.ms"
_NO_CLASSES = "no classes of Java are loaded"
_NO_METRICS = "this client keeps no metrics"
_OWN_METADATA = "the metadata is fetched for each batch, and again when a request fails"
_OF_SYSTEM = "connections are made as the operating system is configured"
_NO_GROUP = "Spark assigns the partitions to its tasks, so the query is no member of a group"
_OWN_BATCHES = "each task sends a batch when it is full, and its last ones at its end"
_BY_ROWS = "many rows without a key follow each other to one partition, whichever broker leads it"

_REASONS_OF_SHARED = {
    **dict.fromkeys(("auto.include.jmx.reporter", "enable.metrics.push", "metric.reporters"), _NO_METRICS),
    **dict.fromkeys(("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"), _NO_METRICS),
    **dict.fromkeys(("config.providers", "interceptor.classes"), _NO_CLASSES),
    **dict.fromkeys(("metadata.cluster.check.enable", "metadata.max.age.ms"), _OWN_METADATA),
    **dict.fromkeys(("metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy"), _OWN_METADATA),
    **dict.fromkeys(("bootstrap.resolve.timeout.ms", "client.dns.lookup", "connections.max.idle.ms"), _OF_SYSTEM),
    **dict.fromkeys(("receive.buffer.bytes", "send.buffer.bytes"), _OF_SYSTEM),
    **dict.fromkeys(("reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries"), _OWN_RETRIES),
    "socket.connection.setup.timeout.max.ms": "kafka.socket.connection.setup.timeout.ms is the limit of every attempt",
    "bootstrap.controllers": "requests are sent to brokers; give kafka.bootstrap.servers",
}
IN_SOURCE: Mapping[str, str] = {
    **_REASONS_OF_SHARED,
    **dict.fromkeys(PRODUCER, "it is a setting of producers"),
    **dict.fromkeys(("group.instance.id", "group.protocol", "group.remote.assignor"), _NO_GROUP),
    **dict.fromkeys(("heartbeat.interval.ms", "internal.leave.group.on.close", "max.poll.interval.ms"), _NO_GROUP),
    **dict.fromkeys(("partition.assignment.strategy", "session.timeout.ms"), _NO_GROUP),
    **dict.fromkeys(("share.acknowledgement.mode", "share.acquire.mode"), "share groups are not read"),
    "allow.auto.create.topics": "a query never creates a topic",
    "auto.commit.interval.ms": "offsets are committed when Spark plans the next batch",
    "client.rack": "records are fetched from the leaders of their partitions, not from replicas of the same rack",
    "exclude.internal.topics": "subscribePattern matches no internal topic; subscribe can name one",
    "fetch.min.bytes": "a task fetches records that exist, and waits for no more of them; minOffsetsPerTrigger does",
    "internal.throw.on.fetch.stable.offset.unsupported": "offsets are in the checkpoint of the query",
    "max.poll.records": "rows are not polled one by one; maxRecordsPerPartition limits the offsets of a task",
}
"""By the name of a setting that the source does not use, the reason."""
IN_SINK: Mapping[str, str] = {
    **_REASONS_OF_SHARED,
    **dict.fromkeys(CONSUMER, "it is a setting of consumers"),
    **dict.fromkeys(("buffer.memory", "buffer.memory.allocation.strategy", "linger.ms"), _OWN_BATCHES),
    **dict.fromkeys(("delivery.timeout.ms", "max.block.ms"), _OWN_RETRIES),
    **dict.fromkeys(("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms"), _BY_ROWS),
    "partitioner.rack.aware": _BY_ROWS,
    **dict.fromkeys(
        ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"), "each codec has its usual level"
    ),
    "client.rack": "it is a setting of the partitioner in Java",
    "max.in.flight.requests.per.connection": "the sink keeps the order of records with its own number of requests",
    "metadata.max.idle.ms": _OWN_METADATA,
}
"""By the name of a setting that the sinks do not use, the reason."""


OF_LIBRDKAFKA: Mapping[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.password": "sasl.jaas.config",
    "sasl.username": "sasl.jaas.config",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
}
"""Names of librdkafka's settings that Kafka's Java clients, whose names are used here, have under another name."""
OF_PLUGINS = ("metrics.", "config.providers.")
"""Beginnings of names that the Java clients pass on to plug-ins."""
_MISSPELT = 0.85
"""How alike an unknown name and a known one are, of 1, where the one is meant to be the other."""


def names_of_client(options: Mapping[str, str]) -> list[str]:
    """Return the names of the options with the prefix `kafka.`, without it, sorted."""
    return sorted(key.lower().removeprefix(PREFIX) for key in options if key.lower().startswith(PREFIX))


def check_known(options: Mapping[str, str]) -> None:
    """Raise JobError for an option with the prefix `kafka.` that seems to be meant as another one.

    The Java clients pass names that they do not know on to plug-ins, so that any other name is possible; it has no
    effect here, as `lines_without_effect` reports.
    """
    for name in names_of_client(options):
        key = f"{PREFIX}{name}"
        if name in KNOWN or name.startswith(OF_PLUGINS):
            continue
        if name in OF_LIBRDKAFKA:
            raise JobError(
                f"the option {key} is named as in librdkafka; the name here is {PREFIX}{OF_LIBRDKAFKA[name]}"
            )
        if nearest := difflib.get_close_matches(name, sorted(KNOWN), 1, _MISSPELT):
            raise JobError(
                f"the option {key} is no setting of Kafka's consumers, producers or admin clients: the nearest name is "
                f"{PREFIX}{nearest[0]}"
            )


def lines_without_effect(names: Iterable[str], reasons: Mapping[str, str], what: str) -> list[str]:
    """Return a line about each setting that has a reason or is unknown, for the log of the one that does `what`."""
    unknown = "no client of Kafka has such a setting, and plug-ins of clients are not loaded"
    found = {name: reasons.get(name, "" if name in KNOWN else unknown) for name in names}
    return [f"{PREFIX}{name} has no effect on {what}: {reason}." for name, reason in found.items() if reason]
