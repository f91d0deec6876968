"""Settings kept in nodes: each topic's own, and the dynamic ones of brokers, as this broker has them in effect.

A change of an entity's node comes with a numbered node under /config/changes that names the entity ("topics/t",
"brokers/<default>"); each broker watches that folder and reads the named entity again. Topics are read on first use
(`ensure`), because a topic's settings are written before the topic, without notice. A topic that is created again has
another id: what was read of the one before does not count for it, whether or not this broker received its deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.topic import LogConfig
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import Gate, Steps
from gregor.replication.store.broker_passwords import BrokerPasswords, OnThread, at_once
from gregor.replication.store.change_notices import ChangeNotices
from gregor.replication.store.metadata_store import BadVersion, MetadataStore, NoNode
from gregor.replication.store.nodes import (
    CONFIG_CHANGES,
    DEFAULT_ENTITY,
    NodeFormatError,
    config_path,
    decode_config,
    decode_config_change,
    encode_config,
)

ENTITY_TYPES = ("users", "clients", "ips")
_TOPICS_PER_READ = 100
_TOPICS_NOTIFIED_AT_ONCE = 500

TopicsListener = Callable[[Collection[str]], Iterable[None]]
"""Receives the names of topics whose settings have changed; its work is done in the steps of the iterable."""

_log = logging.getLogger(__name__)


class TopicConfigs:
    """A cache: `log_config` is one access to a dictionary. `spawn` runs a coroutine on the loop."""

    def __init__(
        self,
        store: MetadataStore,
        broker: BrokerConfig,
        broker_id: int,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        clock_ms: Callable[[], int],
        gate: Gate,
        on_thread: OnThread = at_once,
    ) -> None:
        """`on_thread` calls a function that needs milliseconds."""
        self.on_topics_changed: list[TopicsListener] = []
        self.on_broker_changed: list[Callable[[], None]] = []
        self.on_groups_changed: list[Callable[[str | None], Awaitable[None]]] = []
        """Awaited with the node name of a group whose settings have changed; None stands for any number of groups."""
        self.on_client_metrics_changed: list[Callable[[], Awaitable[None]]] = []
        """Awaited when any client metrics subscription has changed."""
        self.on_entities_changed: list[Callable[[str, str | None], Awaitable[None]]] = []
        """Awaited with the type (users, clients, ips) and the node name of an entity whose settings have changed; None
        stands for any number of entities of this type."""
        self.passwords = BrokerPasswords(broker, on_thread)
        self._store = store
        self._broker = broker
        self._broker_id = broker_id
        self._spawn = spawn
        self._gate = gate
        self._defaults = LogConfig.defaults(broker)
        self._overrides: dict[str, dict[str, str]] = {}
        self._topic_ids: dict[str, Uuid] = {}
        """The id of the topic whose settings were read, by its name."""
        self._configs: dict[str, LogConfig] = {}
        self._notices = ChangeNotices(store, CONFIG_CHANGES, spawn, clock_ms, self._read_changes)
        store.on_session_expired.append(self._session_expired)

    async def start(self) -> None:
        """Put the brokers' dynamic settings into effect and watch for changes."""
        await self._notices.start()
        await self._reencode_passwords()
        await self.refresh_broker()

    async def _reencode_passwords(self) -> None:
        """Encrypt passwords that are stored in clear or encrypted with password.encoder.old.secret."""
        path = config_path("brokers", str(self._broker_id))
        while (node := await self._store.get(path)) is not None:
            try:
                stored = decode_config(node[0])
            except NodeFormatError:
                return  # `refresh_broker` reports it
            if (texts := await self.passwords.reencoded(stored)) is None:
                return
            try:
                erased = await self._store.overwrite(path, encode_config(texts), node[1].version)
            except (BadVersion, NoNode):
                continue  # a tool has altered the settings in the meantime
            if not erased:
                _log.warning(
                    "%s: passwords are encrypted with password.encoder.secret now, but the file of the metadata store"
                    " still has them as they were before: its disk has no room to write the file anew. Free some; then"
                    " the next write to the store removes them.",
                    path,
                )
                return
            _log.info(
                "%s: passwords that were in clear, or encrypted with password.encoder.old.secret, are encrypted with"
                " password.encoder.secret now; the old secret is not needed any more",
                path,
            )
            return

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs; the defaults for a topic without settings or not read yet."""
        return self._configs.get(topic, self._defaults)

    def overrides(self, topic: str) -> Mapping[str, str]:
        """Return the topic's own settings, as they were given."""
        return self._overrides.get(topic, {})

    async def ensure(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Read the settings of those topics, given by name and id, that were not read yet."""
        missing = [(name, topic_id) for name, topic_id in topics if self._topic_ids.get(name) != topic_id]
        if missing:
            found = await self._store.get_many([config_path("topics", name) for name, _ in missing])
            turns = self._gate.turns()
            for (name, topic_id), node in zip(missing, found, strict=True):
                await turns.next()
                if self._topic_ids.get(name) != topic_id:  # else it was read in the meantime
                    self._topic_ids[name] = topic_id
                    self._decode(name, b"" if node is None else node[0])

    async def refresh(self, topic: str) -> None:
        """Read a topic's settings again, and notify the listeners if they have changed."""
        node = await self._store.get(config_path("topics", topic))
        if self._accepts_others(topic, b"" if node is None else node[0]):
            await self._gate.run(self._notify([topic]))

    def _accepts_others(self, topic: str, data: bytes) -> bool:
        before = self.log_config(topic)
        self._decode(topic, data)
        return self.log_config(topic) != before

    def forget(self, topic: str) -> None:
        """Forget a topic that is gone."""
        self._topic_ids.pop(topic, None)
        self._overrides.pop(topic, None)
        self._configs.pop(topic, None)

    def _decode(self, topic: str, data: bytes) -> None:
        try:
            overrides = decode_config(data)
        except NodeFormatError as error:
            _log.warning("Settings of topic %s cannot be read: %s", topic, error)
            overrides = {}
        self._overrides[topic] = overrides
        self._compute(topic)

    def _compute(self, topic: str) -> None:
        overrides = self._overrides[topic]
        if not overrides:
            self._configs.pop(topic, None)
            return
        try:
            self._configs[topic] = self._defaults.with_overrides(overrides)
        except ConfigError:
            self._configs[topic] = self._without_bad(topic, overrides)

    def _without_bad(self, topic: str, overrides: Mapping[str, str]) -> LogConfig:
        """Leave out settings that another program wrote, or an older version allowed: the topic must be served."""
        good: dict[str, str] = {}
        config = self._defaults
        for key, text in overrides.items():
            try:
                config = self._defaults.with_overrides({**good, key: text})
                good[key] = text
            except ConfigError as error:
                _log.warning("Topic %s: setting ignored: %s", topic, error)
        return config

    def _notify(self, topics: Collection[str]) -> Steps[None]:
        for listener in self.on_topics_changed:
            yield from listener(topics)

    # -- changes ---------------------------------------------------------------------------------------------------

    def _session_expired(self) -> None:
        self._notices.lose_watch()
        self._spawn(self._read_all())

    async def _read_all(self) -> None:
        """Read all settings again: the notices of changes during the expired session may be deleted already."""
        await self._notices.start()
        await self.refresh_broker()
        topics = list(self._overrides)
        for start in range(0, len(topics), _TOPICS_PER_READ):
            part = topics[start : start + _TOPICS_PER_READ]
            found = await self._store.get_many([config_path("topics", topic) for topic in part])
            changed = {
                topic
                for topic, node in zip(part, found, strict=True)
                if topic in self._overrides and self._accepts_others(topic, b"" if node is None else node[0])
            }
            if changed:
                await self._gate.run(self._notify(changed))
        await self._groups_changed(None)
        await self._client_metrics_changed()
        for entity_type in ENTITY_TYPES:
            await self._entities_changed(entity_type, None)

    async def _read_changes(self, notices: list[bytes]) -> None:
        entities: dict[str, None] = {}
        for data in notices:
            try:
                entities[decode_config_change(data)] = None
            except NodeFormatError as error:
                _log.warning("A change of settings cannot be read: %s", error)
        for entity in entities:
            await self.entity_changed(entity)

    async def entity_changed(self, entity: str) -> None:
        """Read the settings of an entity again, which its notice names by type and node name."""
        entity_type, _, name = entity.partition("/")
        if entity_type == "topics" and name in self._overrides:
            await self.refresh(name)
        elif entity_type == "brokers" and name in (DEFAULT_ENTITY, str(self._broker_id)):
            await self.refresh_broker()
        elif entity_type == "groups":
            await self._groups_changed(name)
        elif entity_type == "client-metrics":
            await self._client_metrics_changed()
        elif entity_type in ENTITY_TYPES:
            await self._entities_changed(entity_type, name)

    async def _groups_changed(self, name: str | None) -> None:
        for listener in self.on_groups_changed:
            await listener(name)

    async def _client_metrics_changed(self) -> None:
        for listener in self.on_client_metrics_changed:
            await listener()

    async def _entities_changed(self, entity_type: str, name: str | None) -> None:
        for listener in self.on_entities_changed:
            await listener(entity_type, name)

    async def refresh_broker(self) -> None:
        """Read the brokers' dynamic settings again and put them into effect."""
        paths = [config_path("brokers", name) for name in (str(self._broker_id), DEFAULT_ENTITY)]
        try:
            own, default = [decode_config(b"" if n is None else n[0]) for n in await self._store.get_many(paths)]
        except NodeFormatError as error:
            _log.warning("Dynamic broker settings of %s cannot be read and stay as they were: %s", paths, error)
            return
        own = await self.passwords.decoded(own)
        if own == self._broker.dynamic_texts and default == self._broker.dynamic_default_texts:
            return
        own, own_problems = self._broker.usable_dynamic(own, cluster_wide=False)
        default, default_problems = self._broker.usable_dynamic(default, cluster_wide=True)
        for problem in (*own_problems, *default_problems):
            _log.warning("Dynamic broker setting ignored: %s", problem)
        try:
            self._broker.update_dynamic(own, default)
        except ConfigError as error:
            _log.warning("Dynamic broker settings not applied: %s", error)
            return
        await self._gate.run(self._broker_changed())

    def broker_changed(self) -> None:
        """Put the broker's present settings into effect, also as the defaults of topics. Of many topics the last follow
        a moment later."""
        rest = self._gate.start(self._broker_changed())
        if rest is not None:
            self._spawn(_finished(rest))

    def _broker_changed(self) -> Steps[None]:
        for listener in self.on_broker_changed:
            listener()
        defaults = LogConfig.defaults(self._broker)
        if defaults == self._defaults:
            return
        self._defaults = defaults
        topics = list(self._overrides)
        for start in range(0, len(topics), _TOPICS_NOTIFIED_AT_ONCE):
            part = set(topics[start : start + _TOPICS_NOTIFIED_AT_ONCE])
            for topic in part:
                yield None
                if self._defaults is not defaults:
                    return  # they have changed again, and that change is applied to all topics
                if topic in self._overrides:
                    self._compute(topic)
            yield from self._notify(part)


async def _finished(rest: Awaitable[None]) -> None:
    await rest
