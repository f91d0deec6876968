"""A broker's settings: the typed, effective value of every key, where it came from, and what follows from several keys.

Four layers, the upper ones first: dynamic for this broker, dynamic for all brokers, static (file and command line),
default. One object serves the whole broker; the dynamic layers are exchanged in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from config.broker_keys import BROKER_KEYS, broker_synonyms
from config.definitions import CLUSTER_WIDE, READ_ONLY, ConfigDef, ConfigError, ConfigValue
from config.known_keys import NO_EFFECT_KEYS, NO_EFFECT_PREFIXES, PROTECTION_KEYS
from config.listeners import Listener, check_ports, parse_listeners, parse_protocol_map
from config.properties import PropertiesError, load_properties

DEFAULT_CONFIG = "DEFAULT_CONFIG"
STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"

# Keys of brokers before 3.0 that stand in for a missing `listeners` or `advertised.listeners`.
_OLD_ADDRESS_KEYS = ("host.name", "port", "advertised.host.name", "advertised.port")


class BrokerConfig:
    """``config["num.partitions"]`` is the typed value in effect, None where unset; an unknown key is a KeyError.

    ``warnings`` and ``notes`` are lines for the log: warnings want somebody's attention, notes do not.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        """From texts by key, as a properties file has them; ConfigError if one of them cannot be taken."""
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.static_texts: dict[str, str] = {}
        self.dynamic_texts: dict[str, str] = {}
        self.dynamic_default_texts: dict[str, str] = {}
        self._old_address: dict[str, str] = {}
        self._values: dict[str, ConfigValue] = {}
        self._sort(values or {})
        self._values = self._effective({}, {})
        self._resolve()

    @classmethod
    def load(cls, path: str | None = None, overrides: Sequence[tuple[str, str]] = ()) -> BrokerConfig:
        """From a properties file, if any, and ``key=value`` pairs that win over it. OSError if it cannot be read."""
        try:
            values = load_properties(path) if path is not None else {}
        except PropertiesError as error:
            raise ConfigError("file", path, str(error)) from None
        values.update(overrides)
        return cls(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def source(self, key: str) -> str:
        """The layer that the value of ``key`` comes from, by the name Kafka's protocol gives it."""
        if key in self.dynamic_texts:
            return DYNAMIC_BROKER_CONFIG
        if key in self.dynamic_default_texts:
            return DYNAMIC_DEFAULT_BROKER_CONFIG
        return STATIC_BROKER_CONFIG if key in self.static_texts else DEFAULT_CONFIG

    def update_dynamic(self, per_broker: Mapping[str, str], cluster_wide: Mapping[str, str]) -> None:
        """Put both dynamic layers in place of the old ones; ConfigError, and no change, if one value cannot be taken.

        ``listeners`` and what depends on them are resolved once, at start; a later change does not move them.
        """
        for texts, level in ((per_broker, "one broker"), (cluster_wide, "all brokers")):
            for key, text in texts.items():
                definition = _known(key, text)
                if definition.dynamic == READ_ONLY:
                    raise ConfigError(key, text, "is read-only while the broker runs")
                if level == "all brokers" and definition.dynamic != CLUSTER_WIDE:
                    raise ConfigError(key, text, "can be altered for a single broker only")
        values = self._effective(per_broker, cluster_wide)
        _check_together(values)
        self.dynamic_texts, self.dynamic_default_texts = dict(per_broker), dict(cluster_wide)
        self._values = values

    def first_set(self, keys: Sequence[str]) -> tuple[str, ConfigValue]:
        """Of synonyms by falling rank: the key that decides, and its value. The last one always has a default."""
        for key in keys:
            if self._values[key] is not None:
                return key, self._values[key]
        return keys[-1], self._values[keys[-1]]

    # -- what several keys say together ----------------------------------------------------------------------------

    listeners: list[Listener]
    advertised_listeners: list[Listener]
    inter_broker_listener_name: str
    log_dirs: list[str]
    broker_id: int
    """This broker's number; -1 when it has to be generated (ZooKeeper mode only; alone, a broker is number 0)."""

    def _resolve(self) -> None:
        _check_together(self._values)
        self.log_dirs = self._resolve_log_dirs()
        self.broker_id = self._resolve_broker_id()
        self._resolve_listeners()

    def _resolve_log_dirs(self) -> list[str]:
        key, dirs = self.first_set(("log.dirs", "log.dir"))
        if not isinstance(dirs, list) or not dirs:
            raise ConfigError(key, "", "must name at least one folder")
        return dirs

    def _resolve_broker_id(self) -> int:
        node, broker = self["node.id"], self["broker.id"]
        if node >= 0 and broker >= 0 and node != broker:
            raise ConfigError("node.id", node, f"must equal broker.id, which is {broker}")
        number: int = node if node >= 0 else broker
        if number >= 0:
            return number
        if number < -1 or not self["broker.id.generation.enable"]:
            raise ConfigError("broker.id", number, "must be a whole number (int), at least 0")
        return -1 if self["zookeeper.connect"] else 0

    def _resolve_listeners(self) -> None:
        protocols = parse_protocol_map(self["listener.security.protocol.map"])
        skip = frozenset(
            name.strip().upper() for name in self.static_texts.get("controller.listener.names", "").split(",")
        )
        listeners = parse_listeners("listeners", self._listener_texts("listeners", ""), protocols, skip)
        check_ports("listeners", listeners)
        advertised_texts = self._listener_texts("advertised.listeners", "advertised.")
        advertised = parse_listeners("advertised.listeners", advertised_texts, protocols, skip)
        if self["advertised.listeners"] is None:
            # Nothing was promised to clients: each is told the address that it came in by.
            advertised = [one._replace(host="") if one.host in ("0.0.0.0", "::") else one for one in advertised]
        names = [listener.name for listener in listeners]
        for listener in advertised:
            if listener.host == "0.0.0.0":
                raise ConfigError(
                    "advertised.listeners", listener.text, "no client can connect to 0.0.0.0; name a host"
                )
            if listener.name not in names:
                raise ConfigError("advertised.listeners", listener.text, f"listeners has only {', '.join(names)}")
        self.listeners, self.advertised_listeners = listeners, advertised
        self.inter_broker_listener_name = self._resolve_inter_broker([listener.name for listener in advertised])

    def _listener_texts(self, key: str, prefix: str) -> list[str]:
        given: list[str] | None = self[key]
        if key in self.static_texts and given is not None:
            return given
        host, port = self._old_address.get(prefix + "host.name"), self._old_address.get(prefix + "port")
        if host is not None or port is not None:
            bound = self._old_address.get("host.name", "localhost"), self._old_address.get("port", "9092")
            return [f"PLAINTEXT://{host or bound[0]}:{port or bound[1]}"]
        return given if given is not None else self._listener_texts("listeners", "")

    def _resolve_inter_broker(self, advertised_names: list[str]) -> str:
        key, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
        name = self[key]
        if name is not None and by_protocol in self.static_texts:
            raise ConfigError(by_protocol, self[by_protocol], f"cannot be set beside {key}")
        if name is None:
            key, name = by_protocol, self[by_protocol]
        if name.upper() not in advertised_names:
            raise ConfigError(key, name, f"must be one of the advertised listeners: {', '.join(advertised_names)}")
        upper: str = name.upper()
        return upper

    # -- layers ----------------------------------------------------------------------------------------------------

    def _sort(self, values: Mapping[str, str]) -> None:
        """Tell settings, old address keys, keys without effect and unknown keys apart."""
        ignored: list[str] = []
        for key, text in values.items():
            if key in BROKER_KEYS:
                self.static_texts[key] = text
            elif key in _OLD_ADDRESS_KEYS:
                self._old_address[key] = text.strip()
            elif key in NO_EFFECT_KEYS or key.startswith(NO_EFFECT_PREFIXES):
                self.static_texts[key] = text
                if key in PROTECTION_KEYS and text.strip() not in ("", "false"):
                    self.warnings.append(f"{key} has no effect: gregor does not protect what it stands for")
                else:
                    ignored.append(key)
            else:
                self.warnings.append(f"unknown key {key}{nearest_key_hint(key, (*BROKER_KEYS, *NO_EFFECT_KEYS))}")
        if ignored:
            self.notes.append(f"accepted, without effect here: {', '.join(sorted(ignored))}")

    def _effective(self, per_broker: Mapping[str, str], cluster_wide: Mapping[str, str]) -> dict[str, ConfigValue]:
        values: dict[str, ConfigValue] = {}
        for key, definition in BROKER_KEYS.items():
            text = per_broker.get(key, cluster_wide.get(key, self.static_texts.get(key)))
            values[key] = definition.default if text is None else definition.parse(text)
        return values


def nearest_key_hint(key: str, known: Sequence[str]) -> str:
    """What to add to a message about an unknown key."""
    from difflib import get_close_matches  # only ever needed for a mistake

    nearest = get_close_matches(key, known, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def _known(key: str, text: str) -> ConfigDef:
    definition = BROKER_KEYS.get(key)
    if definition is None:
        raise ConfigError(key, text, f"unknown key{nearest_key_hint(key, tuple(BROKER_KEYS))}")
    return definition


def _check_together(values: Mapping[str, Any]) -> None:
    """Limits that one key sets for another."""
    for unlimited, keys in ((-1, broker_synonyms("log.retention.ms")), (None, broker_synonyms("log.roll.ms"))):
        for key in keys:
            value = values[key]
            if value is not None and value < 1 and value != unlimited:
                least = "at least 1" if unlimited is None else "-1 (never) or at least 1"
                raise ConfigError(key, value, f"must be {least}")
    jitter = values["log.roll.jitter.ms"]
    if jitter is not None and jitter < 0:
        raise ConfigError("log.roll.jitter.ms", jitter, "must be at least 0")
    queued, request_max = values["queued.max.request.bytes"], values["socket.request.max.bytes"]
    if 0 < queued < request_max:
        raise ConfigError(
            "queued.max.request.bytes", queued, f"must be -1 or at least socket.request.max.bytes, {request_max}"
        )
    wait = values["replica.fetch.wait.max.ms"]
    for key in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait > values[key]:
            raise ConfigError("replica.fetch.wait.max.ms", wait, f"must be at most {key}, {values[key]}")
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        raise ConfigError("max.connections.per.ip", 0, "0 needs max.connections.per.ip.overrides")
    low, high = values["log.cleaner.min.compaction.lag.ms"], values["log.cleaner.max.compaction.lag.ms"]
    if low > high:
        raise ConfigError("log.cleaner.min.compaction.lag.ms", low, f"must be at most its maximum, {high}")
