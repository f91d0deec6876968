"""The security of a client of a cluster, from the texts of its settings: `security.protocol`, `ssl.*` and `sasl.*`, as
Java's clients have them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gregor.config.definitions import ConfigError
from gregor.protocol.channel_security import PLAINTEXT, PLAINTEXT_CHANNEL, ChannelSecurity

if TYPE_CHECKING:
    from gregor.config.security.jaas import JaasEntry
    from gregor.protocol.sasl.mechanism import ClientMechanism

PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECRETS = frozenset(
    (
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    )
)
"""The keys of type password."""
_CLASSES = (
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "security.providers",
    "ssl.engine.factory.class",
)
_BUILT_IN = {
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.oauthbearer.jwt.retriever.class": (
        "ClientCredentialsJwtRetriever",
        "DefaultJwtRetriever",
        "FileJwtRetriever",
    ),
    "sasl.oauthbearer.jwt.validator.class": ("ClientJwtValidator", "DefaultJwtValidator"),
}
"""Apache Kafka's own classes whose work is built in."""
_KAFKA_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer."


def protocol_of_client(texts: Mapping[str, str]) -> str:
    """Return the security protocol of these settings. Raises ConfigError."""
    given = texts.get("security.protocol", "").strip().upper() or PLAINTEXT
    if given not in PROTOCOLS:
        raise ConfigError("security.protocol", given, f"must be one of {', '.join(PROTOCOLS)}")
    return given


def security_of_client(texts: Mapping[str, str]) -> ChannelSecurity:
    """Return the security that these settings request. Raises ConfigError, which names the key and the remedy."""
    protocol = protocol_of_client(texts)
    if protocol == PLAINTEXT:
        return PLAINTEXT_CHANNEL
    refuse_classes(texts)
    tls_context = None
    if protocol in ("SSL", "SASL_SSL"):
        from gregor.config.security.tls import TlsSettings, client_context

        context = client_context(TlsSettings.of_client(texts))

        def tls_context() -> object:
            return context

    new_mechanism = None
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        name, entry = sasl_of_client(texts)
        _mechanism(name, entry, texts)

        def new_mechanism(host: str) -> ClientMechanism:
            return _mechanism(name, entry, texts, host)

    return ChannelSecurity(protocol, tls_context, new_mechanism)


def refuse_classes(texts: Mapping[str, str]) -> None:
    """Raise ConfigError for a class of Java, unless gregor does what it does."""
    for key in _CLASSES:
        given = texts.get(key, "").strip()
        if given and not _is_built_in(key, given):
            raise ConfigError(key, given, "gregor loads no classes of Java; remove the key")


def _is_built_in(key: str, class_name: str) -> bool:
    """Return whether gregor does what this class of Apache Kafka does (the package of 3.x ends with `secured`)."""
    package, _, name = class_name.removeprefix(_KAFKA_OAUTHBEARER).rpartition(".")
    return (
        package in ("", "secured", "internals.secured")
        and class_name.startswith(_KAFKA_OAUTHBEARER)
        and (name in _BUILT_IN.get(key, ()))
    )


def sasl_of_client(texts: Mapping[str, str]) -> tuple[str, JaasEntry | None]:
    """Return the mechanism, and the entry of `sasl.jaas.config`, if any. Raises ConfigError."""
    from gregor.config.security.jaas import JaasError, parse_jaas

    name = texts.get("sasl.mechanism", "").strip() or "GSSAPI"
    text = texts.get("sasl.jaas.config", "")
    if not text.strip():
        return name, None
    try:
        entries = parse_jaas(text)
    except JaasError as error:
        raise ConfigError("sasl.jaas.config", "(hidden)", str(error)) from None
    if len(entries) > 1:
        raise ConfigError("sasl.jaas.config", "(hidden)", "has more than one login module")
    return name, entries[0]


def _mechanism(
    name: str, entry: JaasEntry | None, texts: Mapping[str, str], host: str = "localhost"
) -> ClientMechanism:
    from gregor.protocol.sasl.clients import client_mechanism
    from gregor.protocol.sasl.mechanism import AuthenticationFailed

    settings = {key: text for key, text in texts.items() if key.startswith("sasl.")}
    try:
        return client_mechanism(name, entry, settings, host=host, now_s=time.time)
    except AuthenticationFailed as error:
        by_default = "" if texts.get("sasl.mechanism", "").strip() else "; it is the mechanism where none is set"
        raise ConfigError("sasl.mechanism", name, f"{error}{by_default}") from None


def handshake_failure(error: OSError) -> str | None:
    """Return cause and remedy of an error of a TLS handshake; None if it is another error."""
    verification = getattr(error, "verify_message", None)
    reason = getattr(error, "reason", None) or ""
    if verification:
        return f"its certificate is not accepted ({verification}); {_VERIFICATION_REMEDIES.get(error.verify_code, _CA)}"  # type: ignore[attr-defined]
    for part, remedy in _HANDSHAKE_REMEDIES.items():
        if part in reason:
            return f"the TLS handshake failed ({reason.replace('_', ' ').lower()}): {remedy}"
    if reason or "EOF occurred in violation of protocol" in str(error):
        return f"the TLS handshake failed ({(reason or str(error)).replace('_', ' ').lower()})"
    return None


_CA = "set ssl.truststore.location to the authority that issued it"
_VERIFICATION_REMEDIES = {
    9: "it is not valid yet: compare the clocks of both machines",
    10: "it has expired: exchange the certificate of the broker",
    62: "it is for another host name: connect by a name in the certificate, or issue one for this name; an empty"
    " ssl.endpoint.identification.algorithm disables the check",
    64: "it is for another address: connect by a name in the certificate, or issue one for this address; an empty"
    " ssl.endpoint.identification.algorithm disables the check",
}
"""By OpenSSL's number of the failure (X509_V_ERR_*)."""
_HANDSHAKE_REMEDIES = {
    "WRONG_VERSION_NUMBER": "the port serves no TLS; give the port of a TLS listener, or another security.protocol",
    "CERTIFICATE_REQUIRED": "the broker requires a certificate of the client; set ssl.keystore.location",
    "UNKNOWN_CA": "the broker does not trust the certificate of the client; set ssl.keystore.location to one that its"
    " ssl.truststore has issued",
    "CERTIFICATE_EXPIRED": "the certificate of the client has expired",
    "PROTOCOL_VERSION": "both sides have no TLS version in common; compare ssl.enabled.protocols",
    "HANDSHAKE_FAILURE": "both sides have no cipher suite in common, or the broker requires a certificate of the"
    " client; set ssl.keystore.location, and compare ssl.cipher.suites",
}
