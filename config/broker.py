"""The settings of a broker: the typed value of each key, its source, and values that follow from several keys.

A value comes from the first of four layers that has it: dynamic for this broker, dynamic for all brokers, static (file
and command line), default. One object serves the whole broker; its dynamic layers are replaced in place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from typing import Any

from gregor.config.addresses import OLD_ADDRESS_KEYS, Addresses, resolve_addresses
from gregor.config.cross_field import check_change, check_cross_field
from gregor.config.definitions import CLUSTER_WIDE, PER_BROKER, READ_ONLY, ConfigDef, ConfigError
from gregor.config.listeners import LISTENER_PREFIX, Listener
from gregor.config.properties import PropertiesError, load_properties
from gregor.config.protection import ALLOW_UNPROTECTED, missing_protection
from gregor.config.tables.broker_keys import BROKER_KEYS, broker_synonyms
from gregor.config.tables.broker_sasl_keys import SASL_LISTENER_KEYS, listener_key
from gregor.config.tables.broker_security_keys import LISTENER_SECURITY_KEYS, STORE_KEYS
from gregor.config.tables.known_keys import NO_EFFECT_KEYS, NO_EFFECT_PREFIXES
from gregor.config.tables.no_effect_keys import keys_without_effect
from gregor.config.validators import ConfigValue

DEFAULT_CONFIG = "DEFAULT_CONFIG"
STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"

_NUMBERS = ("short", "int", "long", "double")
# Settings that can have another value for a single listener, as listener.name.<name in lower case>.<key>.
LISTENER_KEYS = ("max.connections", "max.connection.creation.rate", *LISTENER_SECURITY_KEYS, *SASL_LISTENER_KEYS)


class BrokerConfig:
    """``config["num.partitions"]`` is the typed value in effect, None where unset; an unknown key is a KeyError.

    ``warnings`` and ``notes`` are lines for the log, at these levels. ``overrides`` have precedence over the file at
    each reading; ``environment`` names those of them that come from the environment.
    """

    listeners: list[Listener]
    advertised_listeners: list[Listener]
    inter_broker_listener_name: str
    log_dirs: list[str]
    broker_id: int
    """The number of this broker; -1 when it has to be generated (in ZooKeeper mode; without, a broker is number 0)."""

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        *,
        path: str | None = None,
        overrides: Mapping[str, str] | None = None,
        environment: Collection[str] = (),
    ) -> None:
        """Parse texts by key, as a properties file has them; raise ConfigError if one of them is refused."""
        self.path = path
        self.overrides = dict(overrides or {})
        self.environment = frozenset(environment)
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.static_texts: dict[str, str] = {}
        self.unknown_texts: dict[str, str] = {}
        self.dynamic_texts: dict[str, str] = {}
        self.dynamic_default_texts: dict[str, str] = {}
        self.old_address: dict[str, str] = {}
        self._values: dict[str, ConfigValue] = {}
        ignored = self._sort(values or {})
        self.use(*self._effective(self.static_texts, {}, {}))
        for key in self.static_texts:
            definition = BROKER_KEYS.get(key)
            if definition is not None and definition.no_effect and self._values[key] != definition.default:
                ignored.append(key)
        if ignored:
            self.notes.append(f"accepted, without effect here: {', '.join(sorted(ignored))}")
        self.log_dirs = self._resolve_log_dirs()
        self.broker_id = self._resolve_broker_id()
        self.check_sasl()
        self._check_password_encoder()

    @classmethod
    def load(
        cls,
        path: str | None = None,
        overrides: Sequence[tuple[str, str]] = (),
        environment: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """Read a properties file, if any. Settings of the environment have precedence over it, ``overrides`` over both.

        Raise OSError if the file cannot be read, ConfigError if a setting is refused.
        """
        given = {**(environment or {}), **dict(overrides)}
        from_environment = given.keys() - dict(overrides).keys()
        return cls({**read_file(path), **given}, path=path, overrides=given, environment=from_environment)

    def prepend_lines(self, notes: Sequence[str], warnings: Sequence[str]) -> None:
        """Put further lines for the log before those of the settings."""
        self.notes[:0] = notes
        self.warnings[:0] = warnings

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def listener_value(self, listener: str, key: str) -> Any:
        """Return the value of one of LISTENER_KEYS for a single listener; None where it has no value of its own."""
        return self._values.get(f"{LISTENER_PREFIX}{listener.lower()}.{key}")

    def listener_setting(self, listener: str, key: str) -> Any:
        """Return the value of one of LISTENER_KEYS for a single listener; that of all listeners where it has none."""
        own_key = f"{LISTENER_PREFIX}{listener.lower()}.{key}"
        return self._values[own_key if own_key in self._values else key]

    def value_without_effect(self, key: str) -> Any:
        """Return the value of a setting without effect; its default where the text given is refused."""
        definition = keys_without_effect()[key]
        text = {**self.static_texts, **self.dynamic_default_texts, **self.dynamic_texts}.get(key)
        try:
            return definition.default if text is None else definition.parse(text)
        except ConfigError:
            return definition.default

    def source(self, key: str) -> str:
        """Return the layer that the value of ``key`` comes from, by its name in Kafka's protocol."""
        if key in self.dynamic_texts:
            return DYNAMIC_BROKER_CONFIG
        if key in self.dynamic_default_texts:
            return DYNAMIC_DEFAULT_BROKER_CONFIG
        return STATIC_BROKER_CONFIG if key in self.static_texts else DEFAULT_CONFIG

    def first_set(self, keys: Sequence[str]) -> tuple[str, ConfigValue]:
        """Return the first of these synonyms that has a value, and the value. The last one always has a default."""
        for key in keys:
            if self._values[key] is not None:
                return key, self._values[key]
        return keys[-1], self._values[keys[-1]]

    # -- changes while the broker runs -----------------------------------------------------------------------------

    def update_dynamic(self, per_broker: Mapping[str, str], cluster_wide: Mapping[str, str]) -> None:
        """Replace both dynamic layers; raise ConfigError, and change nothing, if a setting is refused."""
        values, addresses = self._dynamic(per_broker, cluster_wide)
        self.dynamic_texts, self.dynamic_default_texts = dict(per_broker), dict(cluster_wide)
        self.use(values, addresses)

    def drop_dynamic(self, keys: Collection[str]) -> dict[str, str]:
        """Remove these dynamic settings and return those that were set.

        Raise ConfigError, and change nothing, if the remaining settings contradict each other without them.
        """
        layers = self.dynamic_texts, self.dynamic_default_texts
        dropped = {key: text for layer in layers for key, text in layer.items() if key in keys}
        own, default = ({key: text for key, text in layer.items() if key not in keys} for layer in layers)
        self.update_dynamic(own, default)
        return dropped

    def check_dynamic(self, per_broker: Mapping[str, str], cluster_wide: Mapping[str, str]) -> BrokerConfig:
        """Return the settings after an `update_dynamic` with these; raise ConfigError if it is not possible."""
        self._check_secrets(per_broker)
        check_change(self._values, self._dynamic(per_broker, cluster_wide)[0])
        candidate = copy(self)
        candidate.update_dynamic(per_broker, cluster_wide)
        self._check_listener_keys(candidate)
        candidate.check_sasl()
        return candidate

    def _check_secrets(self, per_broker: Mapping[str, str]) -> None:
        """Raise ConfigError for a new password that every client of ZooKeeper could read.

        Apache Kafka refuses it in the same way (``DynamicBrokerConfig.toPersistentProps``).
        """
        for key, text in per_broker.items():
            definition = broker_definition(key)
            if (
                self["zookeeper.connect"]
                and definition is not None
                and definition.sensitive
                and self.dynamic_texts.get(key) != text
                and not self["password.encoder.secret"]
            ):
                raise ConfigError(
                    key,
                    "(hidden)",
                    "a password is not stored in ZooKeeper in clear; set password.encoder.secret in the properties file"
                    " of this broker, restart it, and alter the password then",
                )

    def _check_listener_keys(self, candidate: BrokerConfig) -> None:
        """Raise ConfigError where a key of an open listener differs that only its stores may change while it is open.

        Apache Kafka compares the settings in the same way (``DynamicListenerConfig.validateReconfiguration``).
        """
        protocols = {one.name: one.security_protocol for one in candidate.listeners}
        for listener in self.listeners:
            name, protocol = listener.name, listener.security_protocol
            if protocols.get(name, protocol) != protocol:
                raise ConfigError(
                    "listener.security.protocol.map",
                    f"{name}:{protocols[name]}",
                    f"the listener {name} is open and keeps its protocol, {protocol}; restart the broker, or open a"
                    " listener of another name",
                )
            for key in LISTENER_SECURITY_KEYS:
                before, after = (one.listener_setting(listener.name, key) for one in (self, candidate))
                if before != after and key not in STORE_KEYS:
                    shown = f"{LISTENER_PREFIX}{listener.name.lower()}.{key}"
                    raise ConfigError(
                        shown, candidate.listener_setting(listener.name, key), "cannot be altered while it is open"
                    )

    def usable_dynamic(
        self, texts: Mapping[str, str], *, cluster_wide: bool
    ) -> tuple[dict[str, str], list[ConfigError]]:
        """Return the stored dynamic settings that are legal one by one, and the errors of the others.

        An older broker, or Apache Kafka, may have stored settings that this broker refuses.
        """
        good: dict[str, str] = {}
        problems = []
        for key, text in texts.items():
            try:
                check_dynamic_key(key, text, cluster_wide=cluster_wide)
                good[key] = text
            except ConfigError as error:
                problems.append(error)
        return good, problems

    def update_static(
        self, texts: Mapping[str, str], check_listeners: Callable[[BrokerConfig], None] = lambda candidate: None
    ) -> None:
        """Replace the static settings; raise ConfigError, and change nothing, if one is refused.

        The caller ensures that only keys differ that a running broker can change. `check_listeners` is called with
        the new settings if those of listeners differ, and may raise ConfigError.
        """
        values, addresses = self._effective(texts, self.dynamic_texts, self.dynamic_default_texts)
        candidate = copy(self)
        candidate.use(values, addresses)
        if candidate.differs_for_listeners(self):
            check_listeners(candidate)
        self.static_texts = dict(texts)
        self.use(values, addresses)

    def differs_for_listeners(self, other: BrokerConfig) -> bool:
        """Return whether the listeners, or settings that protect them, are others."""
        if self.listeners != other.listeners:
            return True
        return any(
            self.listener_setting(listener.name, key) != other.listener_setting(listener.name, key)
            for listener in self.listeners
            for key in LISTENER_SECURITY_KEYS
        )

    def _dynamic(
        self, per_broker: Mapping[str, str], cluster_wide: Mapping[str, str]
    ) -> tuple[dict[str, ConfigValue], Addresses]:
        for texts, for_all in ((per_broker, False), (cluster_wide, True)):
            for key, text in texts.items():
                check_dynamic_key(key, text, cluster_wide=for_all)
        return self._effective(self.static_texts, per_broker, cluster_wide)

    # -- layers ----------------------------------------------------------------------------------------------------

    def _sort(self, values: Mapping[str, str]) -> list[str]:
        """Separate settings, old address keys, keys without effect and unknown keys.

        Return the keys without effect for which there is no warning.
        """
        ignored: list[str] = []
        allowed = BROKER_KEYS[ALLOW_UNPROTECTED].parse(values.get(ALLOW_UNPROTECTED, "false"))
        unprotected = missing_protection(values, allowed=allowed is True)
        self.warnings.extend(unprotected.values())
        for key, text in values.items():
            if key in BROKER_KEYS or listener_key(key) in LISTENER_KEYS:
                self.static_texts[key] = text
            elif key in OLD_ADDRESS_KEYS:
                self.old_address[key] = text.strip()
            elif key in NO_EFFECT_KEYS or key.startswith(NO_EFFECT_PREFIXES) or key in keys_without_effect():
                self.static_texts[key] = text
                if key not in unprotected:
                    ignored.append(key)
            else:
                self.unknown_texts[key] = text
                self.warnings.append(f"unknown key {key}{nearest_key_hint(key, known_names())}")
        return ignored

    def _effective(
        self, static: Mapping[str, str], per_broker: Mapping[str, str], cluster_wide: Mapping[str, str]
    ) -> tuple[dict[str, ConfigValue], Addresses]:
        given = dict(static)
        for layer in (cluster_wide, per_broker):
            for key, text in layer.items():
                for synonym in broker_synonyms(key):  # those of the layers below no longer count
                    given.pop(synonym, None)
                given[key] = text
        values: dict[str, ConfigValue] = {}
        for key, definition in BROKER_KEYS.items():
            values[key] = definition.parse(given[key]) if key in given else definition.default
        for key, text in given.items():
            if (base := listener_key(key)) in LISTENER_KEYS:
                values[key] = _parse_as(key, BROKER_KEYS[base], text)
        check_cross_field(values)
        return values, resolve_addresses(values, given, self.old_address)

    # -- values that follow from several keys -----------------------------------------------------------------------

    def use(self, values: dict[str, ConfigValue], addresses: Addresses) -> None:
        """Replace the values in effect, and the addresses that follow from them."""
        self._values = values
        self.listeners, self.advertised_listeners, self.inter_broker_listener_name = addresses

    def check_sasl(self) -> None:
        """Raise ConfigError where a listener with SASL could not authenticate its clients."""
        for listener in self.listeners:
            if listener.security_protocol.startswith("SASL_"):
                from gregor.config.security.sasl import SaslSettings  # it needs this module, and most brokers not it

                SaslSettings.of_listener(self, listener.name)

    def _check_password_encoder(self) -> None:
        """Raise ConfigError for a secret without a cipher, so that no password fails later."""
        for secret_key in ("password.encoder.secret", "password.encoder.old.secret"):
            if self._values[secret_key] is not None:
                from gregor.config.security.password_encoder import PasswordEncoder  # most brokers need no cipher

                PasswordEncoder.of(self.__getitem__, secret_key)
        if self._values["password.encoder.secret"] == "":
            self.warnings.append("password.encoder.secret is empty and counts as not set: give it a text, or remove it")

    def _resolve_log_dirs(self) -> list[str]:
        key, dirs = self.first_set(("log.dirs", "log.dir"))
        if not isinstance(dirs, list) or not dirs:
            raise ConfigError(key, "", "must name at least one folder")
        return dirs

    def adopt_broker_id(self, broker_id: int) -> None:
        """Use the id that the data folders have, or that was generated, where broker.id sets none."""
        assert self.broker_id in (-1, broker_id)
        self.broker_id = broker_id

    def _resolve_broker_id(self) -> int:
        node, broker = self["node.id"], self["broker.id"]
        if node >= 0 and broker >= 0 and node != broker:
            raise ConfigError("node.id", node, f"must equal broker.id, which is {broker}")
        number: int = node if node >= 0 else broker
        if number >= 0:
            reserved = self["reserved.broker.max.id"]
            if number > reserved and self["zookeeper.connect"] and self["broker.id.generation.enable"]:
                raise ConfigError(
                    "broker.id",
                    number,
                    f"must be at most reserved.broker.max.id, {reserved}: larger numbers are generated",
                )
            return number
        if number < -1 or not self["broker.id.generation.enable"]:
            raise ConfigError("broker.id", number, "must be a whole number (int), at least 0")
        return -1 if self["zookeeper.connect"] else 0


def read_file(path: str | None) -> dict[str, str]:
    """Return the texts of a properties file; raise ConfigError if it is malformed, OSError if it is unreadable."""
    try:
        return load_properties(path) if path is not None else {}
    except PropertiesError as error:
        raise ConfigError("file", path, str(error)) from None


def broker_definition(key: str) -> ConfigDef | None:
    """Return the definition of a broker setting, with or without effect; None for an unknown key.

    The setting of a single listener has the definition of the setting for all listeners.
    """
    key = listener_key(key) or key
    return BROKER_KEYS.get(key) or keys_without_effect().get(key)


def known_names() -> tuple[str, ...]:
    return (*BROKER_KEYS, *keys_without_effect(), *NO_EFFECT_KEYS)


def nearest_key_hint(key: str, known: Sequence[str]) -> str:
    """Return the hint that a message about an unknown key ends with; "" if no known key is similar."""
    from difflib import get_close_matches  # imported here, as only mistakes need it

    nearest = get_close_matches(key, known, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def check_dynamic_key(key: str, text: str, *, cluster_wide: bool) -> None:
    """Raise ConfigError unless this is a legal dynamic setting of one broker, or of all of them."""
    definition = broker_definition(key)
    if definition is None:
        raise ConfigError(key, text, f"unknown key{nearest_key_hint(key, known_names())}")
    shown = "(hidden)" if definition.sensitive else text
    base = listener_key(key)
    if base and base not in LISTENER_KEYS:
        reason = definition.no_effect or f"a listener has no {base} of its own"
        raise ConfigError(key, shown, f"cannot be altered: {reason}")
    if definition.dynamic == READ_ONLY:
        raise ConfigError(key, shown, "is read-only while the broker runs")
    if cluster_wide and definition.dynamic != CLUSTER_WIDE:
        raise ConfigError(key, shown, "can be altered for a single broker only")
    if key in STORE_KEYS:
        raise ConfigError(
            key, shown, f"can be altered for a single listener only: {LISTENER_PREFIX}<name in lower case>.{key}"
        )
    if definition.no_effect and definition.dynamic == PER_BROKER and definition.type not in _NUMBERS:
        # Mostly of TLS and SASL: accepting it would promise a protection that is missing. Numbers promise none.
        raise ConfigError(key, shown, f"cannot be altered: {definition.no_effect}")
    _parse_as(key, definition, text)


def _parse_as(key: str, definition: ConfigDef, text: str) -> ConfigValue:
    """Return the value of a key by the definition of another key."""
    try:
        return definition.parse(text)
    except ConfigError as error:
        raise ConfigError(key, error.value, error.message) from None
