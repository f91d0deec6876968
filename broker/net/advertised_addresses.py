"""The advertised addresses of a broker for which `advertised.listeners` is not set.

A listener on every address has no host of its own. A client of this broker gets the address that it connected to
(`context.endpoint_for`); other brokers, and their clients, get this machine's name, as Kafka registers it
(``InetAddress.getLocalHost.getCanonicalHostName``).
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gregor.config.ensemble import parse_connect
from gregor.replication.store.features import REGISTERED
from gregor.replication.store.nodes import BrokerRegistration

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.config.listeners import Listener

_LOCAL_NAMES = ("localhost", "ip6-localhost", "ip6-loopback")
_SOMEWHERE = ("192.0.2.1", 9)
"""TEST-NET-1: only the route to it is determined, nothing is sent."""


class OwnAddresses:
    """The advertised listeners of one broker; `bound` sets their ports."""

    def __init__(self, config: BrokerConfig, in_cluster: bool, clock_ms: Callable[[], int]) -> None:
        self._config = config
        self._in_cluster = in_cluster
        self._clock_ms = clock_ms
        self._ports: Mapping[str, int] = {}
        self.unadvertised: frozenset[str] = frozenset()
        """Listeners without an advertised host: a client gets the address that it connected to."""

    def bound(self, ports: Mapping[str, int]) -> None:
        """Set the ports by listener name, once the settings are in effect."""
        self._ports = ports
        self.unadvertised = frozenset(one.name for one in self._config.advertised_listeners if not one.host)

    def registration(self) -> BrokerRegistration:
        """Return the broker's registration for the metadata store."""
        ports = self._ports

        def reachable(listener: Listener) -> Listener:
            return listener._replace(
                host=listener.host or own_name(self._in_cluster), port=listener.port or ports[listener.name]
            )

        return BrokerRegistration(
            self._config.broker_id,
            tuple(reachable(one) for one in self._config.advertised_listeners if one.name in ports),
            self._config["broker.rack"],
            timestamp_ms=self._clock_ms(),
            features=REGISTERED,
        )


@functools.cache
def own_name(in_cluster: bool) -> str:
    """Return the name under which others reach this machine. A single broker does not use the resolver, which may need
    seconds; in a cluster it is the full name, or, if the name cannot be resolved, the address of the default route."""
    name = socket.gethostname()
    if not in_cluster:
        return name
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return _address_of_default_route() or name
    full = socket.getfqdn(name)
    return name if full.partition(".")[0] in _LOCAL_NAMES else full


def _address_of_default_route() -> str | None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_SOMEWHERE)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def seen_by_clients(unadvertised: Sequence[str], name: str, in_cluster: bool) -> list[str]:
    """Return lines for the log about listeners without an advertised host."""
    if not unadvertised:
        return []
    others = f"; for other brokers, and for clients of those, {name} is advertised" if in_cluster else ""
    return [
        f"{', '.join(sorted(unadvertised))}: each client is given the address that it connected to{others}. Behind a"
        " forwarded port, such as a container's, set advertised.listeners"
    ]


def leads_astray(hosts: Sequence[str], zookeeper_connect: str) -> list[str]:
    """Return lines for the log about a broker of a cluster on several machines that only its own machine can reach."""
    if not zookeeper_connect or all(is_loopback(host) for host, _ in parse_connect(zookeeper_connect).servers):
        return []
    here = sorted({host for host in hosts if is_loopback(host)})
    if not here:
        return []
    return [
        f"this broker is registered as {', '.join(here)}, and its ZooKeeper is elsewhere ({zookeeper_connect}): brokers"
        " and clients on other machines that are sent here are led to themselves; set listeners, and"
        " advertised.listeners where clients need another address"
    ]


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or one of its well-known names; no name is resolved."""
    import ipaddress  # seldom needed

    if host.lower() in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
