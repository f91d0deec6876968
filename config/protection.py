"""Settings that request a protection which gregor does not have, so that no broker starts open unnoticed.

Listeners of TLS or SASL, and such a protocol between brokers, are refused in ``addresses.py``, whatever is allowed
here: their clients could not connect to a listener in clear text.
"""

from __future__ import annotations

from collections.abc import Mapping

from gregor.config.definitions import LONG_MAX, ConfigError
from gregor.config.tables.authorizer_keys import AUTHORIZER_CLASSES

ALLOW_UNPROTECTED = "gregor.allow.unprotected"

# Without these protections the broker would be open to all clients, or its metadata to the network.
REFUSED_KEYS = {
    "authorizer.class.name": "gregor loads no Java classes; its own authorizer is selected by "
    + " or ".join(AUTHORIZER_CLASSES),
    "authorizer.zookeeper.url": "gregor keeps access rules in the ZooKeeper of zookeeper.connect",
}
# Without these the broker is not more open, but a limit or a rule is missing.
WARNED_KEYS = {
    "alter.config.policy.class.name": "gregor has no policies, so every legal setting is accepted",
    "client.quota.callback.class": "gregor has no quotas, so no client is throttled",
    "create.topic.policy.class.name": "gregor has no policies, so every legal topic is created",
    "delegation.token.master.key": "Apache Kafka 4 has removed it; set delegation.token.secret.key instead",
    "principal.builder.class": "gregor has no principals, so every client is anonymous",
    "quota.consumer.default": "gregor has no quotas, so no consumer is throttled",
    "quota.producer.default": "gregor has no quotas, so no producer is throttled",
}
# Quotas that the tools of Apache Kafka set in ZooKeeper, for users, client ids and addresses.
QUOTA_KEYS = {
    "connection_creation_rate": "gregor has no quotas, so connections are accepted at any rate",
    "consumer_byte_rate": "gregor has no quotas, so no consumer is throttled",
    "controller_mutation_rate": "gregor has no quotas, so no client is throttled",
    "producer_byte_rate": "gregor has no quotas, so no producer is throttled",
    "request_percentage": "gregor has no quotas, so no client is throttled",
}
# Texts that request no protection; the last is the default of the quotas, no limit.
_WITHOUT_PROTECTION = ("", "false", str(LONG_MAX))
_SHOWN_NODES = 3
_SECRETS = ("delegation.token.master.key",)


def missing_protection(texts: Mapping[str, str], *, allowed: bool) -> dict[str, str]:
    """Return, by key, a line for the log for each requested protection that is missing.

    Raise ConfigError for one without which the broker would be open, unless ``allowed``.
    """
    found: dict[str, str] = {}
    for key, text in texts.items():
        reason = REFUSED_KEYS.get(key) or WARNED_KEYS.get(key)
        if reason is None or text.strip().lower() in _WITHOUT_PROTECTION or text.strip() in AUTHORIZER_CLASSES:
            continue
        if key in REFUSED_KEYS and not allowed:
            remedy = f"remove {key}, or set {ALLOW_UNPROTECTED}=true to start without this protection"
            raise ConfigError(key, text.strip(), f"{reason}; {remedy}")
        shown = "(hidden)" if key in _SECRETS else text.strip()
        found[key] = f"UNPROTECTED: {key}={shown} has no effect: {reason}"
    return found


def missing_quotas(texts_by_node: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a line for the log for each kind of quota that is set in one of these nodes."""
    lines = []
    for key, reason in QUOTA_KEYS.items():
        found = [
            f"{node}: {texts[key].strip()}"
            for node, texts in texts_by_node.items()
            if texts.get(key, "").strip().lower() not in _WITHOUT_PROTECTION
        ]
        if found:
            more = f" and {len(found) - _SHOWN_NODES} more" if len(found) > _SHOWN_NODES else ""
            lines.append(f"UNPROTECTED: {key} ({', '.join(found[:_SHOWN_NODES])}{more}) has no effect: {reason}")
    return lines
