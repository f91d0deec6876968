"""The security of connections to ZooKeeper: TLS, the user of SASL/DIGEST-MD5, and access control lists of the nodes.

Java reads the user from the section Client of a JAAS file (``-Djava.security.auth.login.config``); here its content is
the setting ``gregor.zookeeper.jaas.config``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gregor.config.definitions import ConfigError
from gregor.config.security.jaas import JaasError, parse_jaas
from gregor.config.security.settings import Secret

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.config.security.tls import TlsSettings

JAAS = "gregor.zookeeper.jaas.config"
INSTALL = "pip install 'gregor[zookeeper-sasl]'"
_PREFIX = "zookeeper."
_MODULE = "DigestLoginModule"
_STORE_KEYS = {
    "ssl.keystore.location": "zookeeper.ssl.keystore.location",
    "ssl.keystore.password": "zookeeper.ssl.keystore.password",
    "ssl.keystore.type": "zookeeper.ssl.keystore.type",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.truststore.password": "zookeeper.ssl.truststore.password",
    "ssl.truststore.type": "zookeeper.ssl.truststore.type",
}


@dataclass(frozen=True)
class ZooKeeperSecurity:
    """The default is a connection in clear text without authentication, and nodes that everyone may write."""

    tls: TlsSettings | None = None
    user: str | None = None
    password: Secret | None = field(default=None, repr=False)
    set_acl: bool = False
    """Whether new nodes are writable by their creator only, and the secret ones readable by it only."""


def zookeeper_security(config: BrokerConfig) -> ZooKeeperSecurity:
    """Return the security that the settings of a broker request. Raises ConfigError, with the key and the remedy."""
    tls = _tls(config) if config["zookeeper.ssl.client.enable"] else None
    user, password = _user(config)
    set_acl: bool = config["zookeeper.set.acl"]
    if set_acl and user is None and (tls is None or not tls.key_store.is_set):
        raise ConfigError(
            "zookeeper.set.acl",
            "true",
            f"the broker would be locked out of its own nodes, as it does not authenticate to ZooKeeper; set {JAAS}, or"
            " zookeeper.ssl.client.enable=true with zookeeper.ssl.keystore.location",
        )
    return ZooKeeperSecurity(tls, user, password, set_acl)


def _user(config: BrokerConfig) -> tuple[str, Secret] | tuple[None, None]:
    text = config["gregor.zookeeper.jaas.config"]
    if text is None:
        return None, None
    try:
        entries = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(JAAS, "(hidden)", str(error)) from None
    entry = entries[0]
    if len(entries) > 1 or entry.module_name != _MODULE:
        raise ConfigError(
            JAAS,
            "(hidden)",
            f"must have one login module, org.apache.zookeeper.server.auth.{_MODULE}: gregor"
            " authenticates to ZooKeeper with SASL/DIGEST-MD5 only",
        )
    user, password = entry.options.get("username"), entry.options.get("password")
    if not user or not password:
        raise ConfigError(JAAS, "(hidden)", "needs the options username and password")
    if find_spec("puresasl") is None:
        raise ConfigError(JAAS, "(hidden)", f"SASL to ZooKeeper needs the package pure-sasl: {INSTALL}")
    return user, Secret(password)


def _tls(config: BrokerConfig) -> TlsSettings:
    from gregor.config.security.settings import StoreSettings
    from gregor.config.security.tls import TlsSettings

    for key in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if config[key]:
            raise ConfigError(key, "true", "gregor checks no revocation of ZooKeeper's certificates; remove the key")

    def of_store(key: str) -> object:
        """Return the setting of a store; stores in the settings themselves exist for listeners only."""
        found = config[_STORE_KEYS[key]] if key in _STORE_KEYS else None
        return "JKS" if found is None and key.endswith(".type") else found

    enabled, protocol = config["zookeeper.ssl.enabled.protocols"], config["zookeeper.ssl.protocol"]
    return TlsSettings(
        prefix=_PREFIX,
        key_store=StoreSettings.key_store(of_store),
        trust_store=StoreSettings.trust_store(of_store),
        enabled_protocols=tuple(enabled) or (protocol,),
        protocol="TLS" if enabled else protocol,
        cipher_suites=tuple(config["zookeeper.ssl.cipher.suites"]),
        endpoint_identification_algorithm=config["zookeeper.ssl.endpoint.identification.algorithm"] or "",
    )
