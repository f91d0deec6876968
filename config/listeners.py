"""Listeners: the addresses that a broker binds or advertises to clients, and the security protocol of each.

The rules are those of Apache Kafka's ``KafkaConfig`` and ``SocketServerConfigs``: names are case-insensitive and
unique, ports are unique unless 0 (any free port) or shared by one IPv4 and one IPv6 address, advertised names are a
subset of the bound ones, and each name has a security protocol in ``listener.security.protocol.map``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gregor.config.definitions import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LISTENER_PREFIX = "listener.name."
"""Of a setting for one listener: the prefix, its name in lower case, a dot, and the key."""
METRICS_LISTENER = "gregor.metrics.listener"
METRICS_PASSWORD_FILE = "gregor.metrics.password.file"
_HOST_CHARS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-%._:")


class Listener(NamedTuple):
    """One listener. ``host`` has no brackets; "" is every address (bound) or this host's canonical name (advertised).

    An advertised ``port`` of 0 stands for the port that was bound.
    """

    name: str
    host: str
    port: int
    security_protocol: str

    @property
    def text(self) -> str:
        return listener_text(self.name, self.host, self.port)


def address_text(host: str, port: int) -> str:
    """Return `host:port`, or `[host]:port` for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_host(text: str) -> bool:
    """Return whether sockets accept the text as a host: none of its labels is empty or has more than 63 characters."""
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def listener_text(name: str, host: str, port: int) -> str:
    """Return `NAME://host:port`, as in `listeners`."""
    return f"{name}://{address_text(host, port)}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Return the security protocol of each listener name in ``listener.security.protocol.map``."""
    key = "listener.security.protocol.map"
    result: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = pair.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not name or protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                key, text, f"must be NAME:PROTOCOL pairs, PROTOCOL one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        if name in result:
            raise ConfigError(key, text, f"names the listener {name} twice")
        result[name] = protocol
    return result


def parse_listeners(key: str, texts: Sequence[str], protocols: dict[str, str], skip: frozenset[str]) -> list[Listener]:
    """Return the listeners of one setting, without the names in ``skip`` (those of KRaft controllers)."""
    shown = ",".join(texts)
    result: list[Listener] = []
    for text in texts:
        name, host, port = _parse_endpoint(key, text)
        if name in skip:
            continue
        if any(other.name == name for other in result):
            raise ConfigError(key, shown, f"each listener needs its own name; {name} occurs twice")
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(key, shown, f"{name} has no security protocol in listener.security.protocol.map")
        result.append(Listener(name, host, port, protocol))
    if not result:
        raise ConfigError(key, shown, "must have at least one NAME://host:port")
    return result


def check_ports(key: str, listeners: Sequence[Listener]) -> None:
    """Raise ConfigError if two listeners have one port, except 0 or one IPv4 and one IPv6 address."""
    by_port: dict[int, list[str]] = {}
    for listener in listeners:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener.host)
    for port, hosts in by_port.items():
        pair = len(hosts) == 2 and sorted(map(_is_ipv6, hosts)) == [False, True] and any(map(_is_ipv4, hosts))
        if len(hosts) > 1 and not pair:
            shown = ",".join(listener.text for listener in listeners)
            raise ConfigError(key, shown, f"each listener needs its own port; {port} occurs twice")


def _parse_endpoint(key: str, text: str) -> tuple[str, str, int]:
    name, separator, address = text.partition("://")
    found = host_and_port(address)
    if found is None or not (separator and name):
        raise ConfigError(key, text, "must be NAME://host:port with a port from 0 to 65535")
    return name.strip().upper(), *found


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return the parts of `host:port`, of which the host may be empty or in brackets; None for any other text."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    legal = (
        bool(colon)
        and _HOST_CHARS.issuperset(host)
        and port.isascii()
        and port.isdigit()
        and len(port) <= 10
        and int(port) <= 65535
    )
    return (host, int(port)) if legal else None


def metrics_listener(text: str) -> Listener:
    """Return the listener for a legal value of METRICS_LISTENER that is not empty: a port alone is of this machine."""
    found = host_and_port(_with_host(text))
    assert found is not None
    return Listener("METRICS", *found, "PLAINTEXT")


def is_metrics_address(value: object) -> bool:
    """Return whether a value of METRICS_LISTENER is empty, a port, or host:port."""
    return not value or host_and_port(_with_host(str(value))) is not None


def _with_host(text: str) -> str:
    return text if ":" in text else f"localhost:{text}"


def _is_ipv6(host: str) -> bool:
    return ":" in host


def _is_ipv4(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and all(part.isdigit() and len(part) <= 3 and int(part) < 256 for part in parts)
