"""The names of users, client ids and addresses as parts of paths, encoded as Kafka's Sanitizer encodes them: as in a
URL, with %20 for a space and %2A for an asterisk."""

from __future__ import annotations

import re

from gregor.protocol.errors import ErrorCode, KafkaError

_ENCODED = re.compile(r"[^A-Za-z0-9_.-]+")
_DECODED = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")


def sanitized(name: str) -> str:
    """Return the name of an entity's node. Raises KafkaError INVALID_REQUEST for names that no node can have."""
    if name in (".", ".."):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no node of the metadata store can be named {name!r}")
    return _ENCODED.sub(lambda run: "%" + run[0].encode().hex("%").upper(), name)


def desanitized(node_name: str) -> str:
    """Return the name of the entity of a node."""
    data = _DECODED.sub(lambda run: bytes.fromhex(run[0].replace(b"%", b"").decode()), node_name.encode())
    return data.decode(errors="replace")
