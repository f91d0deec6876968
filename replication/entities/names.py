"""The names of users, client ids and addresses as parts of paths, encoded as Kafka's Sanitizer encodes them: as in a
URL, with %20 for a space and %2A for an asterisk."""

from __future__ import annotations

from urllib.parse import quote, unquote

from gregor.protocol.errors import ErrorCode, KafkaError


def sanitized(name: str) -> str:
    """Return the name of an entity's node. Raises KafkaError INVALID_REQUEST for names that no node can have."""
    if name in (".", ".."):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no node of the metadata store can be named {name!r}")
    return quote(name, safe="").replace("~", "%7E")


def desanitized(node_name: str) -> str:
    """Return the name of the entity of a node."""
    return unquote(node_name, errors="replace")
