"""The settings that protect a broker: TLS. Names, types, defaults and ranges are those of Apache Kafka 4.3.1.

Each of these settings can have another value for a single listener, as listener.name.<name in lower case>.<key>, which
Apache Kafka prefers (``AbstractConfig.valuesWithPrefixOverride``).
"""

from __future__ import annotations

from gregor.config.definitions import PER_BROKER, ConfigDef
from gregor.config.validators import one_of

_TLS = (
    ConfigDef("ssl.allow.dn.changes", "boolean", False, "Whether a new certificate may have another subject."),
    ConfigDef(
        "ssl.allow.san.changes", "boolean", False, "Whether a new certificate may lack alternative names of the old."
    ),
    ConfigDef(
        "ssl.cipher.suites",
        "list",
        [],
        "Cipher suites that may be agreed on, by Java's names; empty: all that OpenSSL considers safe.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "ssl.client.auth",
        "string",
        "none",
        "Whether clients must present a certificate.",
        one_of("required", "requested", "none"),
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "ssl.enabled.protocols",
        "list",
        ["TLSv1.2", "TLSv1.3"],
        "TLS versions that may be agreed on: TLSv1.2, TLSv1.3.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "ssl.endpoint.identification.algorithm",
        "string",
        "https",
        "How the name of another broker is checked against its certificate; empty: not at all.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "ssl.engine.factory.class",
        "class",
        None,
        "Class that makes TLS engines; gregor accepts only Apache Kafka's DefaultSslEngineFactory.",
        dynamic=PER_BROKER,
    ),
    ConfigDef("ssl.key.password", "password", None, "Password of the private key.", dynamic=PER_BROKER),
    ConfigDef(
        "ssl.keystore.certificate.chain",
        "password",
        None,
        "Certificate of this broker and those that sign it, as PEM.",
        dynamic=PER_BROKER,
    ),
    ConfigDef("ssl.keystore.key", "password", None, "Private key of this broker, as PEM (PKCS#8).", dynamic=PER_BROKER),
    ConfigDef(
        "ssl.keystore.location",
        "string",
        None,
        "File with this broker's key and certificates; a change of the file is followed.",
        dynamic=PER_BROKER,
    ),
    ConfigDef("ssl.keystore.password", "password", None, "Password of ssl.keystore.location.", dynamic=PER_BROKER),
    ConfigDef(
        "ssl.keystore.type",
        "string",
        "JKS",
        "Format of ssl.keystore.location: JKS, PKCS12 or PEM; the real format is detected.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "ssl.principal.mapping.rules",
        "string",
        "DEFAULT",
        "Rules that make the name of a client from the subject of its certificate (KIP-371).",
    ),
    ConfigDef(
        "ssl.protocol",
        "string",
        "TLSv1.3",
        "The highest TLS version: TLSv1.3, TLSv1.2, or TLS for the newest.",
        dynamic=PER_BROKER,
    ),
    ConfigDef("ssl.truststore.certificates", "password", None, "Certificates to trust, as PEM.", dynamic=PER_BROKER),
    ConfigDef(
        "ssl.truststore.location",
        "string",
        None,
        "File with the certificates to trust; a change of the file is followed. Unset: those of the system.",
        dynamic=PER_BROKER,
    ),
    ConfigDef("ssl.truststore.password", "password", None, "Password of ssl.truststore.location.", dynamic=PER_BROKER),
    ConfigDef(
        "ssl.truststore.type",
        "string",
        "JKS",
        "Format of ssl.truststore.location: JKS, PKCS12 or PEM; the real format is detected.",
        dynamic=PER_BROKER,
    ),
)

STORE_KEYS = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
"""The settings that can be altered for an open listener (``SslConfigs.RECONFIGURABLE_CONFIGS``)."""

SECURITY_SETTINGS = _TLS

LISTENER_SECURITY_KEYS = tuple(definition.key for definition in _TLS)
