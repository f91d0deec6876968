"""Settings of a client that have no effect on a source or a sink, above all those of security."""

from __future__ import annotations

from collections.abc import Mapping

from gregor.protocol.client_security import protocol_of_client
from gregor.protocol.sasl.mechanism import GSSAPI, OAUTHBEARER
from gregor.protocol.sasl.oauthbearer import TOKEN_ENDPOINT
from gregor.spark_jobs.client.known_settings import SECURITY, lines_without_effect, names_of_client
from gregor.spark_jobs.client.settings import ClientSettings

_OF_JAVA_TLS = frozenset(
    ("ssl.keymanager.algorithm", "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm")
)
_OF_OAUTHBEARER = ("sasl.login.", "sasl.oauthbearer.")
_OF_VALIDATION = (
    *("sasl.oauthbearer.allow.unverified.", "sasl.oauthbearer.clock.skew.", "sasl.oauthbearer.expected."),
    *("sasl.oauthbearer.jwks.", "sasl.oauthbearer.scope.claim.", "sasl.oauthbearer.sub.claim."),
)
_OF_ASSERTIONS = "sasl.oauthbearer.assertion."
_SERVICE_NAME = "sasl.kerberos.service.name"


def warnings_of(
    options: Mapping[str, str], settings: ClientSettings, others: Mapping[str, str], what: str
) -> tuple[str, ...]:
    """Return a line about each option `kafka.*` without an effect on the one that does `what`; `others` has the reasons
    for settings that are none of security. The settings are made of the options."""
    reasons = {**others, **reasons_of_security(dict(settings.security_texts))}
    return tuple(lines_without_effect(names_of_client(options), reasons, what))


def reasons_of_security(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the reason for each of these settings that the client does not use.

    `texts` has those of security.protocol, ssl.* and sasl.* that are set, of which a client was made.
    """
    protocol = protocol_of_client(texts)
    reasons = {key: _reason(key, protocol, texts) for key in texts if key in SECURITY}
    return {key: reason for key, reason in reasons.items() if reason}


def _reason(key: str, protocol: str, texts: Mapping[str, str]) -> str:
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL_")
    shown = f"kafka.security.protocol is {protocol}{'' if texts.get('security.protocol') else ' by default'}"
    if key.startswith("ssl."):
        if not has_tls:
            return f"connections have no TLS, as {shown}; set it to {'SASL_SSL' if has_sasl else 'SSL or SASL_SSL'}"
        return "TLS is that of OpenSSL, which has no such setting" if key in _OF_JAVA_TLS else ""
    if key.startswith("sasl."):
        if not has_sasl:
            other = "SASL_SSL" if has_tls else "SASL_PLAINTEXT or SASL_SSL"
            return f"connections have no SASL, as {shown}; set it to {other}"
        return _reason_of_sasl(key, texts)
    return "no classes of Java are loaded" if key == "security.providers" else ""


def _reason_of_sasl(key: str, texts: Mapping[str, str]) -> str:
    mechanism = texts.get("sasl.mechanism", "").strip() or GSSAPI
    if key.startswith("sasl.kerberos."):
        if mechanism != GSSAPI:
            return f"it is a setting of {GSSAPI}, and kafka.sasl.mechanism is {mechanism}"
        return "" if key == _SERVICE_NAME else "the Kerberos library of the system obtains the tickets"
    if not key.startswith(_OF_OAUTHBEARER):
        return ""
    if mechanism != OAUTHBEARER:
        default = "" if texts.get("sasl.mechanism", "").strip() else " by default"
        return f"it is a setting of {OAUTHBEARER}, and kafka.sasl.mechanism is {mechanism}{default}"
    if key.startswith(_OF_VALIDATION):
        return "the brokers validate the token of a client"
    if key.startswith(_OF_ASSERTIONS):
        return "the identity provider identifies the client by its id and its secret"
    if not texts.get(TOKEN_ENDPOINT, "").strip() and not key.endswith(".class"):
        return f"no token is fetched, as kafka.{TOKEN_ENDPOINT} is not set"
    return ""
