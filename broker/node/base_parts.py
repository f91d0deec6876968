"""The parts of a broker that the others need: its replicas, its metadata, and what keeps both up to date."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.broker.cluster.recovering_partitions import RecoveringPartitions
from gregor.broker.node.adoption import Adoption
from gregor.broker.node.removed_folders import RemovedFolders
from gregor.replication.entities.credentials import ScramCredentials
from gregor.replication.entities.tokens import DelegationTokens, TokenTimes
from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.partition.replica_manager import ReplicaManager
from gregor.replication.store.features import FinalizedFeatures
from gregor.replication.store.topic_configs import TopicConfigs

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.channel_security import ChannelSecurity
    from gregor.replication.store.metadata_store import MetadataStore
    from gregor.storage.folders.manager import LogManager


@dataclass(slots=True, frozen=True)
class BaseParts:
    """The stored state of a broker, and its view of the cluster."""

    store: MetadataStore
    configs: TopicConfigs
    credentials: ScramCredentials
    tokens: DelegationTokens
    features: FinalizedFeatures
    image: MetadataImage
    replicas: ReplicaManager
    removed: RemovedFolders
    local: ControllerRequestHandler
    recovering: RecoveringPartitions
    adoption: Adoption
    security: ChannelSecurity
    """Of the connections to other brokers."""


def base_parts(
    config: BrokerConfig,
    logs: LogManager,
    store: MetadataStore,
    background: Background,
    clock_ms: Callable[[], int],
    in_cluster: bool,
    security: ChannelSecurity,
) -> BaseParts:
    """Make the parts; `logs` may still be loading. `security` is that of connections to other brokers."""
    gate = background.gate
    configs = TopicConfigs(store, config, config.broker_id, background.spawn, clock_ms, gate, background.run)
    credentials = ScramCredentials(store)
    tokens = _delegation_tokens(config, store, background, clock_ms)
    configs.on_entities_changed.append(credentials.changed)
    features = FinalizedFeatures(store, background.spawn)
    image = MetadataImage()
    removed = RemovedFolders(logs, background, config["log.segment.delete.delay.ms"])
    replicas = ReplicaManager(
        config.broker_id,
        logs,
        configs.log_config,
        clock_ms,
        lag_time_max_ms=config["replica.lag.time.max.ms"],
        is_alive=image.is_alive,
        folder_removed=removed.add,
    )
    recovering = RecoveringPartitions(replicas, logs.is_loading)
    local = ControllerRequestHandler(replicas, image, configs, gate, recovering.hold_back)
    adoption = Adoption(store, logs, config.broker_id, gate, in_cluster=in_cluster)
    return BaseParts(
        store, configs, credentials, tokens, features, image, replicas, removed, local, recovering, adoption, security
    )


def _delegation_tokens(
    config: BrokerConfig, store: MetadataStore, background: Background, clock_ms: Callable[[], int]
) -> DelegationTokens:
    times = TokenTimes(config["delegation.token.max.lifetime.ms"], config["delegation.token.expiry.time.ms"])
    secret = config["delegation.token.secret.key"]
    return DelegationTokens(store, secret, times, clock_ms, background.spawn, background.run)
