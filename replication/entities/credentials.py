"""The SCRAM credentials of users, in the nodes /config/users/<user> that Apache Kafka's brokers and tools use.

Each is a setting of the user, with the mechanism as its key; the node may hold quotas, too, which stay as they are.
This broker has all credentials in memory: they are read at the start, and again with each change notification.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.sasl.scram import (
    BY_NUMBER,
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    ScramCredential,
    credential_of,
    format_credential,
    parse_credential,
)
from gregor.replication.entities.entity_nodes import alter_entity
from gregor.replication.entities.names import desanitized, sanitized
from gregor.replication.store.metadata_store import (
    MetadataStore,
    NoNode,
)
from gregor.replication.store.nodes import (
    CONFIG,
    DEFAULT_ENTITY,
    NodeFormatError,
    config_path,
    decode_config,
)

USERS = "users"
_USERS_PER_READ = 200
_UNKNOWN_MECHANISM = "Unknown SCRAM mechanism"

_log = logging.getLogger(__name__)


class Removal(NamedTuple):
    """A credential to remove. `mechanism` is the number of a request, which may be unknown."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """A credential to set, from a password that the client has hashed."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramCredentials:
    """The credentials by user and mechanism."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._of_users: dict[str, dict[str, ScramCredential]] = {}

    def get(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._of_users.get(user, {}).get(mechanism)

    @property
    def users(self) -> Mapping[str, Mapping[str, ScramCredential]]:
        """The users that have credentials, and these by mechanism."""
        return self._of_users

    async def start(self) -> None:
        """Read all credentials."""
        await self.changed(USERS, None)

    async def changed(self, entity_type: str, name: str | None) -> None:
        """Read the credentials of a user's node again; those of all users for None."""
        if entity_type != USERS or (name is not None and ("/" in name or name == DEFAULT_ENTITY)):
            return
        if name is not None:
            await self._read([name])
            return
        try:
            names = [one for one in await self._store.children(f"{CONFIG}/{USERS}") if one != DEFAULT_ENTITY]
        except NoNode:
            names = []
        for user in self._of_users.keys() - {desanitized(one) for one in names}:
            del self._of_users[user]
        for start in range(0, len(names), _USERS_PER_READ):
            await self._read(names[start : start + _USERS_PER_READ])

    async def _read(self, names: list[str]) -> None:
        found = await self._store.get_many([config_path(USERS, name) for name in names])
        for name, node in zip(names, found, strict=True):
            self._keep(name, b"" if node is None else node[0])

    def _keep(self, name: str, data: bytes) -> None:
        user, credentials = desanitized(name), {}
        try:
            texts = decode_config(data)
        except NodeFormatError:  # without its text, which may hold credentials
            _log.warning("The node of the user %s is not in Kafka's form: the user cannot authenticate by SCRAM", user)
            texts = {}
        for mechanism in MECHANISMS.keys() & texts.keys():
            try:
                credentials[mechanism] = parse_credential(texts[mechanism])
            except ValueError as error:
                _log.warning("The %s credential of the user %s cannot be used: %s", mechanism, user, error)
        if credentials:
            self._of_users[user] = credentials
        else:
            self._of_users.pop(user, None)

    # -- changes -----------------------------------------------------------------------------------------------------

    async def alter(self, user: str, removals: list[Removal], upsertions: list[Upsertion]) -> None:
        """Change the credentials of one user. Raises KafkaError, and changes nothing, if one of them is not legal."""
        check_changes(user, removals, upsertions)
        removed = {BY_NUMBER[one.mechanism].name for one in removals}
        added = {BY_NUMBER[one.mechanism].name: _formatted(one) for one in upsertions}

        def edit(before: Mapping[str, str]) -> dict[str, str]:
            if removed - before.keys():
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
            return {key: text for key, text in before.items() if key not in removed} | added

        try:
            data = await alter_entity(self._store, USERS, sanitized(user), edit)
        except NodeFormatError:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the node of the user {user!r} is not in Kafka's form"
            ) from None
        self._keep(sanitized(user), data)


def check_changes(user: str, removals: list[Removal], upsertions: list[Upsertion]) -> None:
    """Raises KafkaError with the codes and texts of Apache Kafka 3.9 with ZooKeeper (KIP-554).

    The credentials of both mechanisms can change in one request, as one kafka-configs.sh --alter sends them; a KRaft
    controller of Apache Kafka refuses that. Kafka: ZkAdminManager.alterUserScramCredentials.
    """
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    numbers = [one.mechanism for one in removals] + [one.mechanism for one in upsertions]
    if not BY_NUMBER.keys() >= set(numbers):
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, _UNKNOWN_MECHANISM)
    for one in upsertions:
        if one.iterations < MIN_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if one.iterations > MAX_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len(set(numbers)) < len(numbers):
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def _formatted(change: Upsertion) -> str:
    mechanism = BY_NUMBER[change.mechanism]
    return format_credential(credential_of(mechanism, change.salt, change.salted_password, change.iterations))
