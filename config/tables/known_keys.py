"""Broker settings of older releases of Apache Kafka, without effect here: gregor starts with any stock file.

The names are those of 3.9.1 (ZooKeeper mode) and of older brokers' stock files; ``broker_keys.py`` has those of 4.3.1,
``no_effect.tsv`` those of them without effect.
"""

from __future__ import annotations

from gregor.config.listeners import LISTENER_PREFIX

_NAMES = """
authorizer.zookeeper.url
auto.include.jmx.reporter delegation.token.master.key eligible.leader.replicas.enable group.coordinator.new.enable
inter.broker.protocol.version log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms max.id.map.snapshots metadata.log.segment.min.bytes
replica.lag.max.messages sasl.oauthbearer.header.urlencode zookeeper.clientCnxnSocket
zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size zookeeper.sync.time.ms
"""

NO_EFFECT_KEYS = frozenset(_NAMES.split())

# Prefixes of open families: settings of plug-ins, and known settings of single listeners.
NO_EFFECT_PREFIXES = (
    LISTENER_PREFIX,
    "rlmm.config.",
    "rsm.config.",
    "config.providers.",
    "metrics.",
    "kafka.metrics.",
)
