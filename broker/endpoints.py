"""The address a client is told for a broker: that of the listener the client itself came in by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.connection import Connection
    from config.broker import BrokerConfig
    from replication.metadata_image import LiveBroker

_EVERY_ADDRESS = ("", "0.0.0.0", "::")


class NodeEndpoint(NamedTuple):
    host: str
    port: int
    rack: str | None


def endpoint_for(node: LiveBroker, connection: Connection, config: BrokerConfig, own_id: int) -> NodeEndpoint | None:
    """Where the client of `connection` reaches `node`; None if the node lacks the listener.

    A broker that binds every address and advertises none answers with the address that this client reached it at,
    which is right on a host with several networks; a forwarded port still needs advertised.listeners.
    """
    endpoint = node.endpoints.get(connection.listener)
    if endpoint is None:
        return None
    host = endpoint.host
    if node.id == own_id and host in _EVERY_ADDRESS and connection.sockname:
        host = str(connection.sockname[0])
    return NodeEndpoint(host, endpoint.port, node.rack)
