"""The servers of `zookeeper.connect`, with the grammar of ZooKeeper's ``ConnectStringParser``."""

from __future__ import annotations

from typing import NamedTuple

from gregor.config.definitions import ConfigError
from gregor.config.listeners import address_text, host_and_port, is_host

KEY = "zookeeper.connect"
DEFAULT_PORT = 2181

_REMEDY = "must be host:port[,host:port][/chroot]"


class Ensemble(NamedTuple):
    """Host and port of each server; the ``chroot`` is "" or begins with a slash."""

    servers: list[tuple[str, int]]
    chroot: str

    @property
    def addresses(self) -> str:
        """Return the servers as `host:port,host:port`."""
        return ",".join(address_text(*server) for server in self.servers)


def parse_connect(text: str, key: str = KEY) -> Ensemble:
    """Return the parts of `host:port,[::1]:port/chroot`; raise ConfigError for any other text.

    As in Java blanks around an element, empty elements and a chroot of one slash are dropped, and the port is 2181
    where there is none.
    """
    addresses, slash, path = text.strip().partition("/")
    servers = []
    for element in filter(None, (part.strip() for part in addresses.split(","))):
        host, colon, port = element.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = element, ""
        found = host_and_port(f"{host}:{port or DEFAULT_PORT}")
        if found is None or found[1] == 0 or not _is_host(found[0]):
            message = f"{_REMEDY}, with ports from 1 to 65535; '{element}' is not the address of a server"
            raise ConfigError(key, text, message)
        servers.append(found)
    if not servers:
        raise ConfigError(key, text, f"{_REMEDY}; there is no server in it")
    if path and not all(name not in ("", ".", "..") and name.isprintable() for name in path.split("/")):
        raise ConfigError(key, text, f"{_REMEDY}; '{slash}{path}' is not a path of nodes")
    return Ensemble(servers, f"{slash}{path}" if path else "")


def _is_host(host: str) -> bool:
    if ":" in host:
        import ipaddress  # seldom needed

        try:
            return bool(ipaddress.IPv6Address(host))
        except ValueError:
            return False
    return is_host(host)
