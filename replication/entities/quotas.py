"""The quotas of users, client ids and addresses, in the nodes that Apache Kafka's brokers and tools read and write.

They are settings of nodes below /config/users, /config/clients and /config/ips; those of a client id of one user are
in /config/users/<user>/clients/<client id>. The node <default> stands for all that have none of their own. A user's
node may hold SCRAM credentials, too, which stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from gregor.config.definitions import LONG_MAX
from gregor.protocol.turns import Gate
from gregor.replication.entities.entity_nodes import alter_entity
from gregor.replication.entities.names import desanitized, sanitized
from gregor.replication.store.metadata_store import (
    MetadataStore,
    NoNode,
    StoreFailed,
)
from gregor.replication.store.nodes import (
    CONFIG,
    DEFAULT_ENTITY,
    NodeFormatError,
    config_path,
    decode_config,
)

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
IP_KEYS = (CONNECTION_CREATION_RATE,)
LONG_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
"""Their limits are whole numbers, as connection_creation_rate is, which has 32 bits."""

USERS, CLIENTS, IPS = "users", "clients", "ips"
_PATHS_PER_READ = 200

_log = logging.getLogger(__name__)


class Default(Enum):
    """The entity for all users, client ids or addresses that have no quota of their own."""

    DEFAULT = DEFAULT_ENTITY


DEFAULT = Default.DEFAULT
Name = str | Default | None
"""None: the entity has no part of this type."""


class QuotaEntity(NamedTuple):
    """A user, a client id, a client id of a user, or an address."""

    user: Name = None
    client_id: Name = None
    ip: Name = None

    @property
    def config_type(self) -> str:
        """The type in the path of the entity's node."""
        return IPS if self.ip is not None else CLIENTS if self.user is None else USERS

    @property
    def node_name(self) -> str:
        """The rest of the path. Raises KafkaError for a name that no node can have."""
        if self.user is not None and self.client_id is not None:
            return f"{_node_name(self.user)}/{CLIENTS}/{_node_name(self.client_id)}"
        name = self.user if self.user is not None else self.client_id if self.client_id is not None else self.ip
        return _node_name(name)

    @property
    def path(self) -> str:
        return config_path(self.config_type, self.node_name)

    @property
    def keys(self) -> tuple[str, ...]:
        """The quotas that the entity may have."""
        return CLIENT_KEYS if self.ip is None else IP_KEYS

    @property
    def text(self) -> str:
        """The entity in words, for the log."""
        parts = (("user", self.user), ("client id", self.client_id), ("address", self.ip))
        return ", ".join(f"{what} {'<default>' if name is DEFAULT else name}" for what, name in parts if name)


Limits = dict[str, float]
"""The quotas of one entity, by key."""


def entity_of_node(config_type: str, node_name: str) -> QuotaEntity | None:
    """Return the entity of a node that a change notification names; None if it is of no such form."""
    parts = node_name.split("/")
    if config_type == USERS and len(parts) == 3 and parts[1] == CLIENTS:
        return QuotaEntity(user=_name(parts[0]), client_id=_name(parts[2]))
    if len(parts) != 1 or not parts[0]:
        return None
    name = _name(parts[0])
    if config_type == USERS:
        return QuotaEntity(user=name)
    if config_type == CLIENTS:
        return QuotaEntity(client_id=name)
    return QuotaEntity(ip=name) if config_type == IPS else None


def _name(node_name: str) -> str | Default:
    return DEFAULT if node_name == DEFAULT_ENTITY else desanitized(node_name)


def _node_name(name: Name) -> str:
    return DEFAULT_ENTITY if name is DEFAULT or not isinstance(name, str) else sanitized(name)


class QuotaStore:
    """Reads and writes the nodes."""

    def __init__(self, store: MetadataStore, gate: Gate) -> None:
        self._store = store
        self._gate = gate

    # -- reading ---------------------------------------------------------------------------------------------------

    async def read_all(self) -> dict[QuotaEntity, Limits]:
        """Return the quotas of all entities that have some. Nodes that this broker may not read are named in the log,
        and have no quotas."""
        try:
            return await self._read_all()
        except StoreFailed as error:
            _log.error(
                "Quotas below %s/users, clients and ips cannot be read: %s. None of them limits a client of this"
                " broker; give its ZooKeeper user the right to read these nodes, and start it again.",
                CONFIG,
                error,
            )
            return {}

    async def _read_all(self) -> dict[QuotaEntity, Limits]:
        users = await self._children(USERS)
        names = [(USERS, user) for user in users]
        names += [(CLIENTS, name) for name in await self._children(CLIENTS)]
        names += [(IPS, name) for name in await self._children(IPS)]
        turns = self._gate.turns()
        for user in users:
            await turns.next()
            names += [(USERS, f"{user}/{CLIENTS}/{name}") for name in await self._children(f"{USERS}/{user}/{CLIENTS}")]
        found: dict[QuotaEntity, Limits] = {}
        for begin in range(0, len(names), _PATHS_PER_READ):
            part = names[begin : begin + _PATHS_PER_READ]
            nodes = await self._store.get_many([config_path(*one) for one in part])
            for (config_type, node_name), node in zip(part, nodes, strict=True):
                await turns.next()
                entity = entity_of_node(config_type, node_name)
                if entity is not None and (limits := _limits(entity, b"" if node is None else node[0])):
                    found[entity] = limits
        return found

    async def read(self, entity: QuotaEntity) -> Limits:
        """Return the quotas of one entity."""
        node = await self._store.get(entity.path)
        return _limits(entity, b"" if node is None else node[0])

    async def _children(self, below: str) -> list[str]:
        try:
            return sorted(await self._store.children(f"{CONFIG}/{below}"))
        except NoNode:
            return []

    # -- writing ---------------------------------------------------------------------------------------------------

    async def alter(self, entity: QuotaEntity, changes: Mapping[str, str | None]) -> None:
        """Set and remove (None) quotas of an entity, and notify all brokers. A key that is no quota of the entity stays
        as it is: it may be a credential of the user. Raises NodeFormatError for a node that cannot be decoded: it may
        hold more than quotas, so it is not overwritten."""
        quotas = {key: text for key, text in changes.items() if key in entity.keys}
        if not quotas:
            return

        def edit(before: Mapping[str, str]) -> dict[str, str]:
            kept = {key: text for key, text in before.items() if key not in quotas}
            return kept | {key: text for key, text in quotas.items() if text is not None}

        await alter_entity(self._store, entity.config_type, entity.node_name, edit)


def _limits(entity: QuotaEntity, data: bytes) -> Limits:
    try:
        texts = decode_config(data)
    except NodeFormatError:  # without its text, which may name a user's credentials
        _log.warning("%s has no settings in Kafka's form; if it sets a quota, that has no effect", entity.path)
        return {}
    limits: Limits = {}
    for key in entity.keys:
        if key in texts and (limit := _number(entity, key, texts[key])) is not None:
            limits[key] = limit
    return limits


def _number(entity: QuotaEntity, key: str, text: str) -> float | None:
    """Return a limit, a whole number as an int, so that no digit of a large one is lost."""
    try:
        number = float(text)
        if number != number or number in (float("inf"), float("-inf")):
            raise ValueError(text)
    except ValueError:
        _log.warning("%s of %s is not a number: %r; it has no effect", key, entity.text, text)
        return None
    if key in LONG_KEYS or key in IP_KEYS:
        return min(int(text) if text.strip().isdecimal() else int(number), LONG_MAX)
    return number


def described(entity: QuotaEntity) -> Sequence[tuple[str, str | None]]:
    """Return the parts of an entity as the protocol names them: types, and names or None for the default."""
    parts: tuple[tuple[str, Name], ...] = (
        ("user", entity.user), ("client-id", entity.client_id), ("ip", entity.ip),
    )  # fmt: skip
    return [(what, name if isinstance(name, str) else None) for what, name in parts if name is not None]
