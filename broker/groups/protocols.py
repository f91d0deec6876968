"""The group protocols that this broker serves: the classic one always, the consumer protocol under two conditions.

The level of group.version is one that every broker knows: a coordinator of Apache Kafka 3.9 would ignore the records of
consumer groups and write classic ones beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gregor.protocol.api_keys import ApiKey
from gregor.replication.store.features import CONSUMER_PROTOCOL

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.replication.store.features import FinalizedFeatures

CONSUMER_APIS = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE})
"""Advertised only while the consumer protocol is served."""


class GroupProtocols(Protocol):
    """The settings and features that decide about the group protocols."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def features(self) -> FinalizedFeatures: ...


def serves_consumer_groups(broker: GroupProtocols) -> bool:
    """Return whether members may use the consumer group protocol (KIP-848)."""
    return (
        broker.features.group_version() >= CONSUMER_PROTOCOL
        and "consumer" in broker.config["group.coordinator.rebalance.protocols"]
    )
