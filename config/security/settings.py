"""The TLS settings of one listener, with Apache Kafka's keys (``SslConfigs``, ``BrokerSecurityConfigs``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gregor.config.definitions import ConfigError
from gregor.config.listeners import LISTENER_PREFIX, Listener

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
"""The security protocols of listeners whose connections are encrypted."""

KAFKA_ENGINE_FACTORY = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"


class Secret(str):
    """A text that its `repr` does not show, so that no traceback or log line has it."""

    __slots__ = ()

    @classmethod
    def of(cls, value: object) -> Secret | None:
        return None if value is None else cls(value)

    def __repr__(self) -> str:
        return "(hidden)"


@dataclass(frozen=True)
class StoreSettings:
    """The settings of one store. Passwords and keys do not appear in its `repr`."""

    purpose: str
    """`keystore` or `truststore`, as in the names of the settings."""
    type: str = "JKS"
    location: str | None = None
    password: Secret | None = None
    key_password: Secret | None = None
    key: Secret | None = None
    certificates: Secret | None = None

    @classmethod
    def key_store(cls, value: Callable[[str], object]) -> StoreSettings:
        """Return the settings of a key store; ``value`` gives the value of a key."""
        return cls(
            "keystore",
            str(value("ssl.keystore.type")),
            _text(value("ssl.keystore.location")),
            Secret.of(value("ssl.keystore.password")),
            Secret.of(value("ssl.key.password")),
            Secret.of(value("ssl.keystore.key")),
            Secret.of(value("ssl.keystore.certificate.chain")),
        )

    @classmethod
    def trust_store(cls, value: Callable[[str], object]) -> StoreSettings:
        """Return the settings of a trust store; ``value`` gives the value of a key."""
        return cls(
            "truststore",
            str(value("ssl.truststore.type")),
            _text(value("ssl.truststore.location")),
            Secret.of(value("ssl.truststore.password")),
            certificates=Secret.of(value("ssl.truststore.certificates")),
        )

    @property
    def is_set(self) -> bool:
        return any(one is not None for one in (self.location, self.key, self.certificates))

    @property
    def location_key(self) -> str:
        return f"ssl.{self.purpose}.location"


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


class ListenerValues(Protocol):
    """The settings of a broker: the value of a key for one listener, with or without that of all listeners."""

    @property
    def listeners(self) -> Sequence[Listener]: ...
    def listener_setting(self, listener: str, key: str) -> Any: ...
    def listener_value(self, listener: str, key: str) -> Any: ...


@dataclass(frozen=True)
class TlsSettings:
    """The settings of one listener. `prefix` is `listener.name.<name>.`; it stands before the keys in messages."""

    prefix: str
    key_store: StoreSettings
    trust_store: StoreSettings
    client_auth: str = "none"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    protocol: str = "TLSv1.3"
    cipher_suites: tuple[str, ...] = ()
    endpoint_identification_algorithm: str = "https"
    principal_mapping_rules: str = "DEFAULT"
    allow_dn_changes: bool = False
    allow_san_changes: bool = False

    @classmethod
    def of_client(cls, texts: Mapping[str, str]) -> TlsSettings:
        """Return the settings `ssl.*` of a client, from their texts, with the defaults of Java's clients."""

        def value(key: str) -> object:
            return texts.get(key) or ("JKS" if key.endswith(".type") else None)

        def names(key: str) -> tuple[str, ...]:
            return tuple(part.strip() for part in texts.get(key, "").split(",") if part.strip())

        return cls(
            prefix="",
            key_store=StoreSettings.key_store(value),
            trust_store=StoreSettings.trust_store(value),
            enabled_protocols=names("ssl.enabled.protocols") or ("TLSv1.2", "TLSv1.3"),
            protocol=texts.get("ssl.protocol", "").strip() or "TLSv1.3",
            cipher_suites=names("ssl.cipher.suites"),
            endpoint_identification_algorithm=texts.get("ssl.endpoint.identification.algorithm", "https").strip(),
        )

    @classmethod
    def of_listener(cls, config: ListenerValues, listener_name: str) -> TlsSettings:
        """Return the settings of a listener, each with its own value or that of all listeners.

        As in Apache Kafka, clients of SASL_SSL listeners need a certificate only where the listener's own
        ``ssl.client.auth`` requires it (``SaslChannelBuilder.sslClientAuthOverride``).
        """
        prefix = f"{LISTENER_PREFIX}{listener_name.lower()}."

        def value(key: str) -> Any:
            return config.listener_setting(listener_name, key)

        factory = value("ssl.engine.factory.class")
        if factory not in (None, "", KAFKA_ENGINE_FACTORY):
            raise ConfigError(
                "ssl.engine.factory.class", factory, "gregor loads no Java classes; remove it, as OpenSSL serves TLS"
            )
        protocol = next((one.security_protocol for one in config.listeners if one.name == listener_name.upper()), "SSL")
        own_auth = config.listener_value(listener_name, "ssl.client.auth")
        return cls(
            prefix=prefix,
            key_store=StoreSettings.key_store(value),
            trust_store=StoreSettings.trust_store(value),
            client_auth=str((own_auth or "none") if protocol == "SASL_SSL" else value("ssl.client.auth")),
            enabled_protocols=tuple(config.listener_setting(listener_name, "ssl.enabled.protocols")),
            protocol=str(value("ssl.protocol")),
            cipher_suites=tuple(config.listener_setting(listener_name, "ssl.cipher.suites")),
            endpoint_identification_algorithm=str(value("ssl.endpoint.identification.algorithm") or ""),
            principal_mapping_rules=str(value("ssl.principal.mapping.rules")),
            allow_dn_changes=bool(value("ssl.allow.dn.changes")),
            allow_san_changes=bool(value("ssl.allow.san.changes")),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the contexts are made from."""
        return tuple(store.location for store in (self.key_store, self.trust_store) if store.location)
