"""The listeners and advertised listeners of a broker, from all settings that affect them (``KafkaConfig``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gregor.config.definitions import ConfigError
from gregor.config.listeners import Listener, check_ports, parse_listeners, parse_protocol_map

# Keys of brokers before 3.0, used where `listeners` or `advertised.listeners` is missing.
OLD_ADDRESS_KEYS = ("host.name", "port", "advertised.host.name", "advertised.port")


class Addresses(NamedTuple):
    listeners: list[Listener]
    advertised: list[Listener]
    """With an empty host, each client receives the address that it connected to."""
    inter_broker_name: str


def resolve_addresses(values: Mapping[str, Any], given: Mapping[str, str], old_address: Mapping[str, str]) -> Addresses:
    """Return the addresses; raise ConfigError where settings contradict each other.

    ``values`` are the values in effect, ``given`` the texts of the settings that are set in any layer.
    """
    protocols = parse_protocol_map(values["listener.security.protocol.map"])
    skip = frozenset(name.strip().upper() for name in given.get("controller.listener.names", "").split(","))

    def texts(key: str, prefix: str) -> list[str]:
        own: list[str] | None = values[key]
        if key in given and own is not None:
            return own
        host, port = old_address.get(prefix + "host.name"), old_address.get(prefix + "port")
        if host is not None or port is not None:
            bound = old_address.get("host.name", "localhost"), old_address.get("port", "9092")
            return [f"PLAINTEXT://{host or bound[0]}:{port or bound[1]}"]
        return own if own is not None else texts("listeners", "")

    listeners = parse_listeners("listeners", texts("listeners", ""), protocols, skip)
    check_ports("listeners", listeners)
    advertised = parse_listeners("advertised.listeners", texts("advertised.listeners", "advertised."), protocols, skip)
    if values["advertised.listeners"] is None:
        # No address was promised to clients: each of them receives the address that it connected to.
        advertised = [one._replace(host="") if one.host in ("0.0.0.0", "::") else one for one in advertised]
    names = [listener.name for listener in listeners]
    for listener in advertised:
        if listener.host == "0.0.0.0":
            raise ConfigError("advertised.listeners", listener.text, "no client can connect to 0.0.0.0; name a host")
        if listener.name not in names:
            raise ConfigError("advertised.listeners", listener.text, f"listeners has only {', '.join(names)}")
    inter_broker = _inter_broker_name(values, given, [listener.name for listener in advertised])
    return Addresses(listeners, advertised, inter_broker)


def _inter_broker_name(values: Mapping[str, Any], given: Mapping[str, str], advertised_names: list[str]) -> str:
    key, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    name = values[key]
    if name is not None and by_protocol in given:
        raise ConfigError(by_protocol, values[by_protocol], f"cannot be set beside {key}")
    if name is None:
        key, name = by_protocol, values[by_protocol]
    if name.upper() not in advertised_names:
        raise ConfigError(key, name, f"must be one of the advertised listeners: {', '.join(advertised_names)}")
    upper: str = name.upper()
    return upper
