"""Changes to the settings of topics, brokers, groups and client metrics subscriptions, by writing their nodes.

An edit makes the new settings of an entity from its present ones (`incremental`, `replacement`). The result is checked
as a whole before it is written, in Apache Kafka 4.3.1's order: name, values, whether the entity exists.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from gregor.config.broker import BrokerConfig, broker_definition, check_dynamic_key
from gregor.config.definitions import ConfigDef, ConfigError
from gregor.config.topic import LogConfig
from gregor.protocol.codec.primitives import MAX_STRING_BYTES
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_names import name_problem
from gregor.protocol.turns import Gate
from gregor.replication.admin.config_changes import ConfigChange, changed
from gregor.replication.store import nodes
from gregor.replication.store.change_notices import changed_with_notice
from gregor.replication.store.metadata_store import Create, Delete, MetadataStore, NoNode, Operation, Set, Stat
from gregor.replication.store.time_limit import TimeLimit
from gregor.replication.store.topic_configs import TopicConfigs

TOPICS, BROKERS, GROUPS, CLIENT_METRICS = "topics", "brokers", "groups", "client-metrics"

Edit = Callable[[Mapping[str, str]], dict[str, str]]

_DECODED = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")
_ENCODED = re.compile(r"[^A-Za-z0-9_.~-]+")
_log = logging.getLogger(__name__)


def incremental(
    changes: Iterable[ConfigChange],
    definitions: Mapping[str, ConfigDef],
    unknown_operation: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR,
) -> Edit:
    """Return an edit that sets, deletes, appends and subtracts (KIP-339); another operation is refused with
    `unknown_operation`."""
    listed = list(changes)
    return lambda before: changed(before, listed, definitions, unknown_operation)


def replacement(texts: Mapping[str, str]) -> Edit:
    """Return an edit that replaces all settings by these (the older AlterConfigs)."""
    given = dict(texts)
    return lambda before: given


def check_own_number(name: str, broker_id: int) -> None:
    """Raises KafkaError INVALID_REQUEST unless the name is this broker's number."""
    # int() would accept spaces and underscores as well.
    if not re.fullmatch(r"[+-]?\d{1,10}", name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a broker is named by its number, not {name!r}")
    if int(name) != broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker_id}, not broker {name}: send the request to that one"
        )


class ConfigAdmin:
    """Methods raise KafkaError; a change is in effect on this broker when they return.

    `check_listeners` is called before a change of listeners is written; it raises ConfigError if one cannot be opened.
    """

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        broker_id: int,
        configs: TopicConfigs,
        gate: Gate,
        check_listeners: Callable[[BrokerConfig], None] = lambda candidate: None,
    ) -> None:
        self._check_listeners = check_listeners
        self._store = store
        self._config = config
        self._broker_id = broker_id
        self._configs = configs
        self._gate = gate

    async def alter(
        self, entity_type: str, name: str, edit: Edit, limit: TimeLimit | None = None, *, validate_only: bool = False
    ) -> None:
        """Alter the settings of an entity. `entity_type` is one of TOPICS, BROKERS ("" names all of them), GROUPS,
        CLIENT_METRICS. `limit`: that of the request, which may be about more entities.

        Raises INVALID_REQUEST, INVALID_TOPIC_EXCEPTION (names); INVALID_CONFIG, for brokers INVALID_REQUEST (values);
        UNKNOWN_TOPIC_OR_PARTITION; REQUEST_TIMED_OUT; UNKNOWN_SERVER_ERROR (a node that cannot be decoded).
        """
        limit = limit or TimeLimit()
        if entity_type == TOPICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no settings in common")
            if (problem := name_problem(name)) is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name: {problem}")
        elif entity_type == BROKERS:
            name = self._broker_entity(name)
        elif not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{entity_type} have no settings in common")
        before, after = await limit.within(partial(self._write, entity_type, name, edit, validate_only))
        if validate_only:
            return
        # All brokers are notified of the change by a node, also if this request does not wait until it is in effect.
        if entity_type == TOPICS:
            await limit.within(partial(self._configs.refresh, name))
        elif entity_type == BROKERS:
            await limit.within(self._configs.refresh_broker)
            _warn_of_no_effect(before, after)
        elif entity_type in (GROUPS, CLIENT_METRICS):
            await limit.within(partial(self._configs.entity_changed, f"{entity_type}/{node_name(entity_type, name)}"))

    def _broker_entity(self, name: str) -> str:
        if not name:
            return nodes.DEFAULT_ENTITY
        check_own_number(name, self._broker_id)
        return str(self._broker_id)

    # -- reading ----------------------------------------------------------------------------------------------

    async def texts(self, entity_type: str, name: str) -> dict[str, str]:
        """Return the settings of its own that an entity has. Raises KafkaError: see `texts_of`."""
        found = (await self.texts_of(entity_type, [name]))[name]
        if isinstance(found, KafkaError):
            raise found
        return found

    async def texts_of(self, entity_type: str, names: Collection[str]) -> dict[str, dict[str, str] | KafkaError]:
        """Return the settings of its own that each entity has, from the nodes: a broker remembers only those of its own
        topics, and its memory may be behind. Errors among the values: REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR (a node
        that cannot be decoded)."""
        paths = [nodes.config_path(entity_type, node_name(entity_type, name)) for name in names]
        try:
            found = await TimeLimit().within(partial(self._store.get_many, paths))
        except KafkaError as error:
            return dict.fromkeys(names, error)
        texts: dict[str, dict[str, str] | KafkaError] = {}
        turns = self._gate.turns()
        for name, node in zip(names, found, strict=True):
            await turns.next()
            try:
                texts[name] = _decoded(entity_type, name, node)
            except KafkaError as error:
                texts[name] = error
        return texts

    async def names(self, entity_type: str) -> list[str]:
        """Return the groups or client metrics subscriptions that have settings of their own."""
        try:
            found = await TimeLimit().within(partial(self._store.children, f"{nodes.CONFIG}/{entity_type}"))
        except NoNode:
            return []
        return sorted(entity_name(name) for name in found)

    # -- writing ---------------------------------------------------------------------------------------------------

    async def _write(
        self, entity_type: str, name: str, edit: Edit, validate_only: bool
    ) -> tuple[dict[str, str], dict[str, str]]:
        path = nodes.config_path(entity_type, node_name(entity_type, name))
        data = nodes.encode_config_change(f"{entity_type}/{node_name(entity_type, name)}")
        notice = Create(nodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
        while True:
            node = await self._store.get(path)
            stored = _decoded(entity_type, name, node)
            before, unreadable = await self._broker_settings(name, stored) if entity_type == BROKERS else (stored, {})
            after = edit({**before, **unreadable})
            kept = {key: text for key, text in unreadable.items() if after.get(key) == text}
            after = {key: text for key, text in after.items() if key not in kept}
            _check_sizes(after)
            self._check(entity_type, name, after)
            if entity_type == TOPICS and await self._store.exists(nodes.topic_path(name)) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            if validate_only or (node is None and not after):
                return before, after
            texts = await self._configs.passwords.encoded(after, stored) | kept if entity_type == BROKERS else after
            write: Operation
            if node is None:
                write = Create(path, nodes.encode_config(texts))
            elif after or entity_type in (TOPICS, BROKERS):
                write = Set(path, nodes.encode_config(texts), node[1].version)
            else:
                write = Delete(path, node[1].version)
            if await changed_with_notice(self._store, write, notice):
                return before, after

    async def _broker_settings(self, name: str, stored: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the settings of a broker's node that this broker accepts, passwords in clear: others, which another or
        older broker stored, prevent no change. Then the passwords that it cannot decrypt, as they are stored: a later
        start with the right secret has them again, unless the edit replaces or deletes them."""
        for_all = name == nodes.DEFAULT_ENTITY
        texts = stored if for_all else await self._configs.passwords.decoded(stored)
        unreadable = {key: text for key, text in stored.items() if key not in texts}
        return _dynamic_only(texts, for_all=for_all), unreadable

    def _check(self, entity_type: str, name: str, texts: Mapping[str, str]) -> None:
        error_code = ErrorCode.INVALID_CONFIG
        try:
            if entity_type == TOPICS:
                LogConfig.defaults(self._config).with_overrides(texts)
            elif entity_type == BROKERS:
                error_code = ErrorCode.INVALID_REQUEST
                self._check_broker(name, texts)
            elif entity_type == GROUPS:
                from gregor.config.tables.group_keys import check_group

                check_group(texts, self._config)
            else:
                from gregor.config.tables.client_metrics import UnknownClientMetricsKey, check_client_metrics

                try:
                    check_client_metrics(texts)
                except UnknownClientMetricsKey as error:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        except ConfigError as error:
            raise KafkaError(error_code, str(error)) from None

    def _check_broker(self, name: str, texts: Mapping[str, str]) -> None:
        config = self._config
        if name == nodes.DEFAULT_ENTITY:
            candidate = config.check_dynamic(config.dynamic_texts, texts)
        else:
            candidate = config.check_dynamic(texts, config.dynamic_default_texts)
        if candidate.differs_for_listeners(config):
            self._check_listeners(candidate)


def _decoded(entity_type: str, name: str, node: tuple[bytes, Stat] | None) -> dict[str, str]:
    """Return the settings in a node. Raises KafkaError UNKNOWN_SERVER_ERROR if it cannot be decoded."""
    try:
        return nodes.decode_config(b"" if node is None else node[0])
    except nodes.NodeFormatError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the settings of {entity_type}/{name} cannot be read: {error}; correct the node or delete it",
        ) from None


def _check_sizes(texts: Mapping[str, str]) -> None:
    """Refuse a value that has become longer, by changes one after the other, than any response could carry."""
    for key, text in texts.items():
        if len(text.encode()) > MAX_STRING_BYTES:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} would have more than {MAX_STRING_BYTES} bytes")


def _dynamic_only(texts: Mapping[str, str], *, for_all: bool) -> dict[str, str]:
    """Return the settings that are legal one by one."""
    kept = {}
    for key, text in texts.items():
        with suppress(ConfigError):
            check_dynamic_key(key, text, cluster_wide=for_all)
            kept[key] = text
    return kept


def _warn_of_no_effect(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for key, text in after.items():
        definition = broker_definition(key)
        if definition is not None and definition.no_effect and before.get(key) != text:
            _log.warning("%s=%s is kept, but has no effect: %s", key, text, definition.no_effect)


def node_name(entity_type: str, name: str) -> str:
    """Return the name of an entity's node: names that may hold any character are encoded as in a URL."""
    if entity_type in (TOPICS, BROKERS):
        return name
    if name in (".", ".."):  # a path of ZooKeeper must not have these
        return name.replace(".", "%2E")
    return _ENCODED.sub(lambda run: "%" + run[0].encode().hex("%").upper(), name)


def entity_name(name: str) -> str:
    """Return the name of the entity of a node."""
    data = _DECODED.sub(lambda run: bytes.fromhex(run[0].replace(b"%", b"").decode()), name.encode())
    return data.decode(errors="replace")
