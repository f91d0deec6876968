"""Topic names: the internal ones, the legal ones, and collisions between two of them (Kafka's class Topic)."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LENGTH = 249
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
REBALANCES_TOPIC = "__gregor_rebalances"
"""The history of rebalances, which Apache Kafka does not have. A broker of Apache Kafka hosts it as any other topic."""
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, REBALANCES_TOPIC})

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def name_problem(name: str) -> str | None:
    """Return the problem of a name, or None. A name becomes part of a folder's name, hence the limits."""
    if not name:
        return "a topic's name must not be empty"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > MAX_LENGTH:
        return f"a topic's name has at most {MAX_LENGTH} characters, this one has {len(name)}"
    if not _LEGAL.issuperset(name):
        return f"{name!r} has other characters than letters and digits (ASCII), '.', '_' and '-'"
    return None


def may_collide(name: str) -> bool:
    """Return whether another name can collide with this one."""
    return "." in name or "_" in name


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """Return an existing topic whose name differs only in '.' for '_': metrics write both as '_'."""
    if not may_collide(name):
        return None
    own = folded(name)
    return next((other for other in existing if other != name and folded(other) == own), None)


def folded(name: str) -> str:
    """Return the name as metrics write it: names that collide have this in common."""
    return name.replace(".", "_")
