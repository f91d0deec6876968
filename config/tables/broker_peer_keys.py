"""The settings of connections that a broker opens itself: to other brokers with SASL, and to ZooKeeper.

Names, types and defaults are those of Apache Kafka 4.3.1 and, for ZooKeeper, 3.9.1.
"""

from __future__ import annotations

from gregor.config.definitions import INTERNAL, PER_BROKER, RETIRED, ConfigDef


def _of_zookeeper(name: str, type_: str, default: str | bool | list[str] | None, text: str) -> ConfigDef:
    return ConfigDef(f"zookeeper.{name}", type_, default, text, visibility=RETIRED)


PEER_SETTINGS = (
    ConfigDef(
        "sasl.mechanism.inter.broker.protocol",
        "string",
        "GSSAPI",
        "SASL mechanism of connections to other brokers; one of those that the inter-broker listener serves.",
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "gregor.zookeeper.jaas.config",
        "password",
        None,
        "Login module with which the broker authenticates to ZooKeeper (SASL/DIGEST-MD5): what the section Client of"
        " Java's JAAS file has.",
        visibility=INTERNAL,
    ),
    _of_zookeeper("ssl.client.enable", "boolean", False, "Whether connections to ZooKeeper are encrypted."),
    _of_zookeeper("ssl.cipher.suites", "list", [], "Cipher suites that may be agreed on, by Java's names; empty: all."),
    _of_zookeeper("ssl.crl.enable", "boolean", False, "Whether revocation lists are read; gregor reads none."),
    _of_zookeeper(
        "ssl.enabled.protocols", "list", [], "TLS versions that may be agreed on; empty: zookeeper.ssl.protocol."
    ),
    _of_zookeeper(
        "ssl.endpoint.identification.algorithm",
        "string",
        "HTTPS",
        "How the name of a server is checked against its certificate; empty: not at all.",
    ),
    _of_zookeeper("ssl.keystore.location", "string", None, "File with this broker's key and certificates."),
    _of_zookeeper("ssl.keystore.password", "password", None, "Password of zookeeper.ssl.keystore.location."),
    _of_zookeeper("ssl.keystore.type", "string", None, "Format of the key store; the real format is detected."),
    _of_zookeeper("ssl.ocsp.enable", "boolean", False, "Whether OCSP is used; gregor does not use it."),
    _of_zookeeper("ssl.protocol", "string", "TLSv1.2", "TLS version of connections to ZooKeeper."),
    _of_zookeeper("ssl.truststore.location", "string", None, "File with the certificates to trust."),
    _of_zookeeper("ssl.truststore.password", "password", None, "Password of zookeeper.ssl.truststore.location."),
    _of_zookeeper("ssl.truststore.type", "string", None, "Format of the trust store; the real format is detected."),
)
