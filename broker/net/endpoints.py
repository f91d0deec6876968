"""The address a client is told for a broker: that of the listener the client itself came in by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gregor.broker.net.connection import Connection
    from gregor.replication.partition.metadata_image import LiveBroker


class NodeEndpoint(NamedTuple):
    host: str
    port: int
    rack: str | None


def endpoint_for(node: LiveBroker, connection: Connection, *, own: bool) -> NodeEndpoint | None:
    """Where the client of `connection` reaches `node`; None if the node lacks the listener.

    `own`: the node is this broker, and it advertises no host on this listener. Then the answer is the address that this
    client reached it at, which is right on a machine with several networks; a forwarded port still needs
    advertised.listeners.
    """
    endpoint = node.endpoints.get(connection.listener)
    if endpoint is None:
        return None
    host = str(connection.sockname[0]) if own and connection.sockname else endpoint.host
    return NodeEndpoint(host, endpoint.port, node.rack)
