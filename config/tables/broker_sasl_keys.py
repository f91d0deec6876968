"""The settings of SASL and of delegation tokens. Names, types, defaults and ranges are those of Apache Kafka 4.3.1.

SASL_LISTENER_KEYS can have another value for a single listener, as listener.name.<name in lower case>.<key>, and those
of MECHANISM_KEYS for a mechanism of it, as listener.name.<name>.<mechanism in lower case>.<key>
(``ListenerName.saslMechanismConfigPrefix``).
"""

from __future__ import annotations

from gregor.config.definitions import PER_BROKER, ConfigDef
from gregor.config.listeners import LISTENER_PREFIX
from gregor.config.validators import at_least

MECHANISM_NAMES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

_SASL = (
    ConfigDef("sasl.enabled.mechanisms", "list", ["GSSAPI"], "SASL mechanisms that are served.", dynamic=PER_BROKER),
    ConfigDef(
        "sasl.jaas.config",
        "password",
        None,
        "Login module and its options, for one mechanism of one listener: listener.name.<name>.<mechanism>.<key>.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "sasl.server.callback.handler.class",
        "class",
        None,
        "Class that checks what clients send. gregor has only Apache Kafka's OAuthBearerValidatorCallbackHandler.",
    ),
    ConfigDef("sasl.server.max.receive.size", "int", 524288, "Largest request before authentication."),
    ConfigDef(
        "connections.max.reauth.ms",
        "long",
        0,
        "Time after which a client must have authenticated again, or the next request ends its connection; 0: never.",
    ),
    ConfigDef(
        "connection.failed.authentication.delay.ms",
        "int",
        100,
        "Pause before a failed authentication is answered and its connection is closed.",
        at_least(0),
    ),
)

_OAUTHBEARER = (
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.url",
        "string",
        None,
        "Address of the identity provider's keys, which sign tokens: https://..., http://... or file:///...",
    ),
    ConfigDef("sasl.oauthbearer.jwks.endpoint.refresh.ms", "long", 3600000, "How often these keys are read again."),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "long", 100, "First pause after a failure to read them."
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "long",
        10000,
        "Longest pause after repeated failures to read them.",
    ),
    ConfigDef(
        "sasl.oauthbearer.clock.skew.seconds",
        "int",
        30,
        "Difference of clocks that is granted to a token.",
    ),
    ConfigDef(
        "sasl.oauthbearer.expected.audience",
        "list",
        [],
        "Audiences of which a token must name one; empty: only tokens that name none are valid.",
    ),
    ConfigDef("sasl.oauthbearer.expected.issuer", "string", None, "Issuer that a token must name; unset: any."),
    ConfigDef(
        "sasl.oauthbearer.jwt.validator.class",
        "class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Class that checks tokens. gregor has only Apache Kafka's DefaultJwtValidator and BrokerJwtValidator.",
    ),
    ConfigDef("sasl.oauthbearer.scope.claim.name", "string", "scope", "Claim that has the scopes of a token."),
    ConfigDef("sasl.oauthbearer.sub.claim.name", "string", "sub", "Claim that has the name of the client."),
)

_KERBEROS = (
    ConfigDef(
        "sasl.kerberos.service.name",
        "string",
        None,
        "Name of the brokers' service in Kerberos: kafka, if their principals are kafka/HOST@REALM.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "sasl.kerberos.principal.to.local.rules",
        "list",
        ["DEFAULT"],
        "Rules that make the name of a client of its principal in Kerberos; the first that fits decides.",
        dynamic=PER_BROKER,
    ),
)

_LOGIN = (
    ConfigDef(
        "sasl.oauthbearer.token.endpoint.url",
        "string",
        None,
        "Address at which the broker fetches the token with which it authenticates to other brokers: https://...,"
        " http://..., or file:///... of a file with the token.",
    ),
    ConfigDef("sasl.oauthbearer.client.credentials.client.id", "string", None, "Id of the broker for that address."),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.secret", "password", None, "Secret of the broker for that address."
    ),
    ConfigDef("sasl.oauthbearer.scope", "string", None, "Scope for which a token is requested."),
    ConfigDef("sasl.login.connect.timeout.ms", "int", None, "Limit of a connection to that address; unset: 10 s."),
    ConfigDef("sasl.login.read.timeout.ms", "int", None, "Limit of each wait for its response; unset: 10 s."),
    ConfigDef("sasl.login.retry.backoff.ms", "long", 100, "First pause after a failure to fetch a token."),
    ConfigDef(
        "sasl.login.retry.backoff.max.ms", "long", 10000, "Sum of the pauses, after which an authentication fails."
    ),
    ConfigDef(
        "sasl.login.refresh.window.factor",
        "double",
        0.8,
        "Share of a token's life after which it is replaced.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "sasl.login.refresh.window.jitter", "double", 0.05, "Largest random addition to that share.", dynamic=PER_BROKER
    ),
    ConfigDef(
        "sasl.login.refresh.min.period.seconds",
        "short",
        60,
        "Shortest time between two replacements of a token.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "sasl.login.refresh.buffer.seconds",
        "short",
        300,
        "Time before the end of a token by which it is replaced.",
        dynamic=PER_BROKER,
    ),
)

_DELEGATION_TOKENS = (
    ConfigDef(
        "delegation.token.secret.key",
        "password",
        None,
        "Secret that signs delegation tokens, the same on all brokers; unset: there are none.",
    ),
    ConfigDef(
        "delegation.token.max.lifetime.ms",
        "long",
        604800000,
        "Time for which a delegation token can be renewed.",
        at_least(1),
    ),
    ConfigDef(
        "delegation.token.expiry.time.ms",
        "long",
        86400000,
        "Time for which a delegation token is valid without a renewal.",
        at_least(1),
    ),
    ConfigDef(
        "delegation.token.expiry.check.interval.ms",
        "long",
        3600000,
        "How often expired delegation tokens are removed.",
        at_least(1),
    ),
)

SASL_SETTINGS = (*_SASL, *_OAUTHBEARER, *_KERBEROS, *_LOGIN, *_DELEGATION_TOKENS)

SASL_LISTENER_KEYS = tuple(
    one.key
    for one in (*_SASL, *_OAUTHBEARER, *_KERBEROS, *_LOGIN)
    if one.key != "connection.failed.authentication.delay.ms"
)
MECHANISM_KEYS = (
    "sasl.jaas.config",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
    *(one.key for one in _OAUTHBEARER),
)
_PREFIXES = tuple(f"{name.lower()}." for name in MECHANISM_NAMES)


def listener_key(key: str) -> str:
    """Return <setting> of a key listener.name.<name>.<setting>; "" for other keys.

    The setting may stand behind a mechanism's name if it is one of MECHANISM_KEYS.
    """
    if not key.startswith(LISTENER_PREFIX):
        return ""
    setting = key[len(LISTENER_PREFIX) :].partition(".")[2]
    for prefix in _PREFIXES:
        if setting.startswith(prefix) and setting[len(prefix) :] in MECHANISM_KEYS:
            return setting[len(prefix) :]
    return setting
