"""The coordinators of a broker, of groups and of transactions, and what they send to other brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.broker.cluster.coordinator_log import CoordinatorLog
from gregor.broker.cluster.transaction_markers import LocalMarkers, TransactionMarkers
from gregor.broker.cluster.transaction_timeouts import TransactionTimeouts
from gregor.broker.cluster.transaction_verifier import PartitionVerifier
from gregor.broker.features.consumer_groups import ConsumerGroupsOfBrokers
from gregor.broker.features.downgrade import EndsWithLevel
from gregor.broker.features.new_transactions import NewTransactionsOfBrokers
from gregor.broker.groups.settings import GroupSettings, settings_of_all
from gregor.broker.groups.topics import ClusterTopics
from gregor.broker.history.topic_births import TopicBirths
from gregor.broker.history.writer import RebalanceHistory
from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.consumer.config import ConsumerGroups
from gregor.coordinator.group.coordinator import GroupCoordinator
from gregor.coordinator.txn.config import TransactionConfig
from gregor.coordinator.txn.coordinator import TransactionCoordinator
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, REBALANCES_TOPIC, TRANSACTION_STATE_TOPIC
from gregor.replication.store.features import CONSUMER_PROTOCOL

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.broker.node.base_parts import BaseParts
    from gregor.config.broker import BrokerConfig


@dataclass(slots=True, frozen=True)
class Coordinators:
    """Both coordinators; `markers` is how transactions reach the partitions, `verifier` and `timeouts` how these reach
    them."""

    groups: GroupCoordinator
    group_settings: GroupSettings
    transactions: TransactionCoordinator
    local_markers: LocalMarkers
    markers: TransactionMarkers
    verifier: PartitionVerifier
    timeouts: TransactionTimeouts
    history: RebalanceHistory | None

    def close(self) -> None:
        """Answer pending and later requests with an error on which clients find another coordinator."""
        self.transactions.close()
        self.groups.close()
        if self.history is not None:
            self.history.close()
        self.markers.close()
        self.verifier.close()
        self.timeouts.close()


def make_coordinators(
    config: BrokerConfig,
    base: BaseParts,
    background: Background,
    clock_ms: Callable[[], int],
    producer_ids: Callable[[], Awaitable[int]],
    transaction_version: Callable[[], int],
) -> Coordinators:
    """Make the parts. `producer_ids` returns a new id, `transaction_version` the finalised level of the feature."""
    topics, settings = ClusterTopics(base.image), GroupSettings(base.store, config, base.configs)
    history = _make_history(config, base, background, clock_ms)
    group_log = CoordinatorLog(GROUP_METADATA_TOPIC, base.replicas, background)
    groups = GroupCoordinator(
        GroupConfig.from_broker(config),
        group_log,
        group_log,
        clock_ms,
        background.gate,
        partition_count=config["offsets.topic.num.partitions"],
        consumer_groups=ConsumerGroups(
            topics,
            settings,
            settings_of_all(config),
            lambda: base.features.group_version() >= CONSUMER_PROTOCOL,
            base.features.admits_consumer_members,
        ),
        history=history,
    )
    local_markers = LocalMarkers(base.replicas, groups, clock_ms)
    markers = TransactionMarkers(config, base.image, local_markers, background, base.security)
    transaction_log = CoordinatorLog(TRANSACTION_STATE_TOPIC, base.replicas, background)
    transactions = TransactionCoordinator(
        TransactionConfig.from_broker(config),
        transaction_log,
        transaction_log,
        producer_ids,
        markers,
        clock_ms,
        background.gate,
        transaction_version=transaction_version,
        partition_count=config["transaction.state.log.num.partitions"],
    )
    topics.on_changed.append(groups.on_topics_changed)
    EndsWithLevel(base.features, NewTransactionsOfBrokers(transactions), background.spawn)
    EndsWithLevel(base.features, ConsumerGroupsOfBrokers(groups), background.spawn)
    verifier = PartitionVerifier(config, base.image, transactions, background, base.security)
    timeouts = TransactionTimeouts(config, base.image, transactions, background, base.security)
    return Coordinators(groups, settings, transactions, local_markers, markers, verifier, timeouts, history)


def _make_history(
    config: BrokerConfig, base: BaseParts, background: Background, clock_ms: Callable[[], int]
) -> RebalanceHistory | None:
    """Make the history of rebalances, which begins to write when it is started."""
    if not config["gregor.rebalance.history.enable"]:
        return None
    log = CoordinatorLog(REBALANCES_TOPIC, base.replicas, background)
    return RebalanceHistory(
        config, base.image, log, TopicBirths(base.image, clock_ms), background, clock_ms, base.security
    )
