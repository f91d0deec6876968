"""Broker settings that Apache Kafka knows and that change nothing here: a stock server.properties must start gregor.

Names of Apache Kafka 4.3.1, of 3.9.1 (ZooKeeper mode), and of older brokers' stock files. A key moves from here into
``broker_keys.py`` when it starts to act; a test keeps the two apart and checks that no name of 4.3.1 is missing.
"""

from __future__ import annotations

_NAMES = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms alter.config.policy.class.name
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name
auto.include.jmx.reporter broker.heartbeat.interval.ms broker.session.timeout.ms client.quota.callback.class
config.providers connection.failed.authentication.delay.ms connections.max.reauth.ms controller.listener.names
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms controller.quorum.voters controller.quota.window.num
controller.quota.window.size.seconds cordoned.log.dirs create.topic.policy.class.name
delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.master.key
delegation.token.max.lifetime.ms delegation.token.secret.key early.start.listeners eligible.leader.replicas.enable
follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms group.consumer.assignors
group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms group.consumer.max.size
group.consumer.migration.policy group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms
group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
group.coordinator.new.enable group.coordinator.rebalance.protocols group.coordinator.threads
group.share.assignment.interval.ms group.share.assignors group.share.delivery.count.limit
group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms group.share.partition.max.record.locks
group.share.persister.class.name group.share.record.lock.duration.ms group.share.session.timeout.ms
group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
group.streams.max.size group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms group.streams.num.standby.replicas
group.streams.session.timeout.ms initial.broker.registration.timeout.ms inter.broker.protocol.version
internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
kafka.metrics.polling.interval.secs kafka.metrics.reporters log.local.retention.bytes log.local.retention.ms
log.message.downconversion.enable log.message.format.version log.message.timestamp.difference.max.ms
max.id.map.snapshots metadata.log.dir metadata.log.max.record.bytes.between.snapshots
metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.min.bytes
metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
num.replica.alter.log.dirs.threads password.encoder.cipher.algorithm password.encoder.iterations
password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
principal.builder.class process.roles quota.consumer.default quota.producer.default quota.window.num
quota.window.size.seconds remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads
remote.log.storage.manager.class.name remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
remote.log.storage.system.enable replica.lag.max.messages replica.selector.class replication.quota.window.num
replication.quota.window.size.seconds sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class sasl.server.max.receive.size security.providers
server.max.startup.time.ms share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.replication.factor
share.coordinator.state.topic.segment.bytes share.coordinator.threads share.coordinator.write.timeout.ms
share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.client.auth
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
ssl.truststore.type telemetry.max.bytes transaction.two.phase.commit.enable unclean.leader.election.interval.ms
unstable.api.versions.enable unstable.feature.versions.enable zookeeper.clientCnxnSocket
zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size zookeeper.ssl.cipher.suites
zookeeper.ssl.client.enable zookeeper.ssl.crl.enable zookeeper.ssl.enabled.protocols
zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location zookeeper.ssl.keystore.password
zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol zookeeper.ssl.truststore.location
zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type zookeeper.sync.time.ms
"""

NO_EFFECT_KEYS = frozenset(_NAMES.split())

# Open families: plug-ins' own settings and per-listener forms of known settings.
NO_EFFECT_PREFIXES = (
    "listener.name.",
    "rlmm.config.",
    "rsm.config.",
    "config.providers.",
    "metrics.",
    "kafka.metrics.",
)

# Without effect, and whoever sets one expects protection: these are named in a warning of their own.
PROTECTION_KEYS = frozenset(
    (
        "authorizer.class.name",
        "principal.builder.class",
        "create.topic.policy.class.name",
        "alter.config.policy.class.name",
        "client.quota.callback.class",
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "quota.consumer.default",
        "quota.producer.default",
        "zookeeper.ssl.client.enable",
    )
)
