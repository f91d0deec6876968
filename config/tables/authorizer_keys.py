"""Broker settings of the built-in authorizer. Part of ``broker_keys.BROKER_KEYS``.

Apache Kafka's authorizers read ``super.users`` and ``allow.everyone.if.no.acl.found`` themselves: they are not among
the broker's own settings there, and are described where they are set.
"""

from __future__ import annotations

from gregor.config.definitions import INTERNAL, ConfigDef, ConfigError

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZER_CLASSES = (ACL_AUTHORIZER, STANDARD_AUTHORIZER)
"""Both select the built-in authorizer, with the behaviour of the class where the two differ."""

AUTHORIZER_SETTINGS = (
    ConfigDef(
        "authorizer.class.name",
        "string",
        "",
        f"{ACL_AUTHORIZER} or {STANDARD_AUTHORIZER}: requests are allowed by the access rules (gregor acls); empty: "
        "every request is allowed.",
    ),
    ConfigDef(
        "super.users",
        "string",
        "",
        "Principals such as User:admin, separated by semicolons, that may do everything.",
        visibility=INTERNAL,
    ),
    ConfigDef(
        "allow.everyone.if.no.acl.found",
        "boolean",
        False,
        "Whether everything is allowed on a resource that no access rule is about.",
        visibility=INTERNAL,
    ),
)


def parse_super_users(text: str) -> list[str]:
    """Return the principals of super.users. Raises ConfigError."""
    principals = [part.strip() for part in text.split(";") if part.strip()]
    for principal in principals:
        if ":" not in principal:
            reason = "has no colon between type and name, as User:admin has; principals are separated by semicolons"
            raise ConfigError("super.users", text, f"{principal!r} {reason}")
    return principals
