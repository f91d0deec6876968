"""Settings that request a protection which gregor does not have, so that no broker starts open unnoticed.

The settings of TLS and SASL are checked in ``gregor.config.security``, whatever is allowed here: a listener that could
authenticate no client stops the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from gregor.config.definitions import ConfigError
from gregor.config.tables.authorizer_keys import AUTHORIZER_CLASSES
from gregor.config.tables.broker_sasl_keys import listener_key

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
    "client.quota.callback.class": "gregor loads no Java classes, so the quotas of users and client ids apply",
    "create.topic.policy.class.name": "gregor has no policies, so every legal topic is created",
    "delegation.token.master.key": "Apache Kafka 4 has removed it; set delegation.token.secret.key instead",
    "principal.builder.class": "gregor loads no Java classes; a principal is what TLS or SASL has authenticated",
    "security.providers": "gregor loads no Java classes; OpenSSL serves TLS, and gregor itself SASL",
    "ssl.trustmanager.algorithm": "OpenSSL checks certificates, by the chain of their authorities, as PKIX does",
}
# Those that Apache Kafka reads for a single listener, too, as listener.name.<name>.<key>.
_OF_LISTENERS = ("principal.builder.class", "security.providers", "ssl.trustmanager.algorithm")
# Texts that request no protection.
_WITHOUT_PROTECTION = ("", "false")
# Texts that request what gregor does.
_SERVED = {
    "authorizer.class.name": AUTHORIZER_CLASSES,
    "principal.builder.class": ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",),
    "ssl.trustmanager.algorithm": ("PKIX",),
}
_SECRETS = ("delegation.token.master.key",)


def missing_protection(texts: Mapping[str, str], *, allowed: bool) -> dict[str, str]:
    """Return, by key, a line for the log for each requested protection that is missing.

    Raise ConfigError for one without which the broker would be open, unless ``allowed``.
    """
    found: dict[str, str] = {}
    for key, text in texts.items():
        base = own if (own := listener_key(key)) in _OF_LISTENERS else key
        reason = REFUSED_KEYS.get(base) or WARNED_KEYS.get(base)
        if reason is None or text.strip().lower() in _WITHOUT_PROTECTION or text.strip() in _SERVED.get(base, ()):
            continue
        if key in REFUSED_KEYS and not allowed:
            remedy = f"remove {key}, or set {ALLOW_UNPROTECTED}=true to start without this protection"
            raise ConfigError(key, text.strip(), f"{reason}; {remedy}")
        shown = "(hidden)" if key in _SECRETS else text.strip()
        found[key] = f"UNPROTECTED: {key}={shown} has no effect: {reason}"
    return found
