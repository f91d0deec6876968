"""The settings of consumer groups on this broker: those of the broker, and over them those of single groups.

A group's own settings are a node under /config/groups (a GROUP resource of IncrementalAlterConfigs), which need not
belong to a group that exists. Each broker reads all of them when it starts, and single ones by their notices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.config.tables.broker_group_keys import ASSIGNORS
from gregor.coordinator.group.consumer.config import ConsumerGroupConfig, ConsumerGroupSettings
from gregor.replication.admin.configs import GROUPS, entity_name
from gregor.replication.store.metadata_store import NoNode
from gregor.replication.store.nodes import CONFIG, NodeFormatError, config_path, decode_config

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.replication.store.metadata_store import MetadataStore
    from gregor.replication.store.topic_configs import TopicConfigs

GATHER_MS = 5
"""Members that start together join within a few milliseconds. Each one that gets its assignment before the next one has
joined must give partitions up again, with two more heartbeats of all."""
_GROUPS_PER_READ = 100


def settings_of_all(config: BrokerConfig) -> ConsumerGroupSettings:
    """Return what all consumer groups of a broker have in common."""
    return ConsumerGroupSettings(
        assignors=tuple(dict.fromkeys(ASSIGNORS[name] for name in config["group.consumer.assignors"])),
        max_size=config["group.consumer.max.size"],
        migration_policy=config["group.consumer.migration.policy"].lower(),
        regex_refresh_interval_ms=config["group.consumer.regex.refresh.interval.ms"],
        gather_ms=GATHER_MS,
    )


class GroupSettings:
    """Implements GroupConfigs: `of` is one access to a dictionary."""

    def __init__(self, store: MetadataStore, config: BrokerConfig, configs: TopicConfigs) -> None:
        self._store = store
        self._config = config
        self._texts: dict[str, dict[str, str]] = {}
        self._own: dict[str, ConsumerGroupConfig] = {}
        self._defaults = self._effective("", {})
        configs.on_broker_changed.append(self._broker_changed)
        configs.on_groups_changed.append(self.refresh)

    async def start(self) -> None:
        """Read the settings of all groups that have some."""
        try:
            names = await self._store.children(f"{CONFIG}/{GROUPS}")
        except NoNode:
            names = []
        groups = {entity_name(name) for name in names}
        for gone in self._texts.keys() - groups:
            self._forget(gone)
        for first in range(0, len(names), _GROUPS_PER_READ):
            await self._read(names[first : first + _GROUPS_PER_READ])

    def of(self, group_id: str) -> ConsumerGroupConfig:
        return self._own.get(group_id, self._defaults)

    async def refresh(self, name: str | None) -> None:
        """Read the settings of the group again whose node has this name, or those of all groups."""
        if name is None:
            await self.start()
        else:
            await self._read([name])

    async def _read(self, names: list[str]) -> None:
        nodes = await self._store.get_many([config_path(GROUPS, name) for name in names])
        for name, node in zip(names, nodes, strict=True):
            group_id = entity_name(name)
            try:
                texts = decode_config(b"" if node is None else node[0])
            except NodeFormatError as error:
                logger.warning("settings of group %s cannot be decoded, and the broker's apply: %s", group_id, error)
                texts = {}
            self._put_in_force(group_id, texts)

    def _put_in_force(self, group_id: str, texts: dict[str, str]) -> None:
        if not texts:
            self._forget(group_id)
            return
        self._texts[group_id] = texts
        self._own[group_id] = self._effective(group_id, texts)

    def _forget(self, group_id: str) -> None:
        self._texts.pop(group_id, None)
        self._own.pop(group_id, None)

    def _broker_changed(self) -> None:
        defaults = self._effective("", {})
        if defaults != self._defaults:
            self._defaults = defaults
            for group_id, texts in self._texts.items():
                self._own[group_id] = self._effective(group_id, texts)

    def _effective(self, group_id: str, texts: Mapping[str, str]) -> ConsumerGroupConfig:
        config = self._config
        values: Mapping[str, int] = {}
        if texts:
            from gregor.config.tables.group_keys import effective_group  # a broker starts faster without

            values, problems = effective_group(texts, config)
            for problem in problems:
                logger.warning("group %s: %s", group_id, problem)
        session_ms, heartbeat_ms, interval_ms = (
            values.get("consumer.session.timeout.ms", config["group.consumer.session.timeout.ms"]),
            values.get("consumer.heartbeat.interval.ms", config["group.consumer.heartbeat.interval.ms"]),
            values.get("consumer.assignment.interval.ms", config["group.consumer.assignment.interval.ms"]),
        )
        if session_ms <= heartbeat_ms:
            logger.warning(
                "group %s: its session timeout, %d ms, is not above its heartbeat interval, %d ms, so that its members"
                " lose their sessions; check the limits that the broker sets for both",
                group_id,
                session_ms,
                heartbeat_ms,
            )
        return ConsumerGroupConfig(session_ms, heartbeat_ms, interval_ms)
