"""The settings of a listener with SASL: its mechanisms, the login modules of each, and the limits of an exchange.

A value comes from listener.name.<name>.<mechanism>.<key>, listener.name.<name>.<key> or <key>, in this order. A
listener that cannot authenticate its clients as it is configured stops the start of the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gregor.config.definitions import ConfigError
from gregor.config.listeners import LISTENER_PREFIX
from gregor.config.security.jaas import KERBEROS_MODULE, JaasEntry, JaasError, KerberosLogin, parse_jaas
from gregor.config.security.principal_rules import KERBEROS_KEY, KerberosRules

_USER = "user_"
_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": KERBEROS_MODULE,
}
_NEEDING_JAAS = ("PLAIN", "GSSAPI")
_OAUTH_VALIDATOR = "OAuthBearerValidatorCallbackHandler"
_VALIDATOR = "sasl.oauthbearer.jwt.validator.class"
_BROKER_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator"
_DEFAULT_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
"""With the address of keys it is BrokerJwtValidator, which checks what gregor checks."""
_UNSECURED = "unsecured"
_JAAS = "sasl.jaas.config"
_HANDLER = "sasl.server.callback.handler.class"
_JWKS = "sasl.oauthbearer.jwks.endpoint.url"
SERVICE_NAME = "sasl.kerberos.service.name"
_LOGIN_KEYS = (
    SERVICE_NAME,
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
)
"""They describe how this broker authenticates to other brokers: the name of their service in Kerberos, and how it
fetches a token."""


class Values(Protocol):
    """The settings of a broker: the typed value of each key, those of single listeners included."""

    def __getitem__(self, key: str) -> Any: ...
    def __contains__(self, key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class JwksSettings:
    """Which tokens of an identity provider are valid, and where its keys are."""

    url: str
    refresh_ms: int
    retry_ms: int
    max_retry_ms: int
    clock_skew_s: int
    audiences: frozenset[str]
    issuer: str | None
    scope_claim: str
    subject_claim: str
    tls_texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The options `ssl.*` of the login module: those of a connection to https (Kafka's JaasOptionsUtils)."""


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The identity of this broker in Kerberos, and the names of its clients' principals."""

    login: KerberosLogin
    rules: KerberosRules
    jaas_key: str
    """The key of the login module."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The settings of one listener."""

    mechanisms: tuple[str, ...]
    jaas: Mapping[str, JaasEntry]
    """By mechanism; one that needs no options may be missing."""
    max_reauth_ms: Mapping[str, int]
    """By mechanism; 0: an authentication has no end."""
    failure_delay_ms: int
    max_request_bytes: int
    """Of requests before authentication."""
    jwks: JwksSettings | None = None
    """None: OAUTHBEARER is off, or its tokens are unsecured."""
    kerberos: KerberosSettings | None = None
    """None: GSSAPI is off."""
    login_texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By key, the settings of `sasl.*` with which this broker authenticates to other brokers, beside the options of the
    login module."""

    @classmethod
    def of_listener(cls, config: Values, listener: str) -> SaslSettings:
        """Raises ConfigError, with the key and the remedy."""
        return _Reader(config, listener).settings()

    @property
    def passwords(self) -> dict[str, str]:
        """Return the users of PLAIN, from the options user_<name>=<password>."""
        entry = self.jaas.get("PLAIN")
        options: Mapping[str, str] = {} if entry is None else entry.options
        return {key[len(_USER) :]: text for key, text in options.items() if key.startswith(_USER)}


@dataclass(slots=True)
class _Reader:
    config: Values
    listener: str
    jaas: dict[str, JaasEntry] = field(default_factory=dict)

    def settings(self) -> SaslSettings:
        key, names = self._found("sasl.enabled.mechanisms")
        if not names:
            raise ConfigError(key, "", f"the listener {self.listener} needs one mechanism at least")
        for name in names:
            self._check(key, name)
        return SaslSettings(
            tuple(names),
            self.jaas,
            {name: self._found("connections.max.reauth.ms", name)[1] for name in names},
            self.config["connection.failed.authentication.delay.ms"],
            self._found("sasl.server.max.receive.size")[1],
            self._jwks() if "OAUTHBEARER" in names else None,
            self._kerberos() if "GSSAPI" in names else None,
            {key: str(value) for key in _LOGIN_KEYS if (value := self._found(key)[1]) is not None},
        )

    def _found(self, key: str, mechanism: str = "") -> tuple[str, Any]:
        """Return the name under which a key is set, and its value."""
        prefix = f"{LISTENER_PREFIX}{self.listener.lower()}."
        names = [f"{prefix}{key}", key]
        if mechanism:
            names.insert(0, f"{prefix}{mechanism.lower()}.{key}")
        for name in names:
            if name in self.config and (name == key or self.config[name] is not None):
                return name, self.config[name]
        return key, self.config[key]

    def _check(self, key: str, mechanism: str) -> None:
        if mechanism not in _MODULES:
            served = ", ".join(_MODULES)
            raise ConfigError(
                key,
                mechanism,
                f"{mechanism} is no mechanism of Apache Kafka; set {LISTENER_PREFIX}{self.listener.lower()}.{key} to"
                f" some of {served}",
            )
        own_key = f"{LISTENER_PREFIX}{self.listener.lower()}.{mechanism.lower()}.{_JAAS}"
        if own_key not in self.config:
            if mechanism in _NEEDING_JAAS:
                raise ConfigError(own_key, "", self._without_jaas(key, mechanism))
        else:
            self.jaas[mechanism] = self._entry(own_key, mechanism, self.config[own_key])
        handler_key, handler = self._found(_HANDLER, mechanism)
        if handler and not (mechanism == "OAUTHBEARER" and handler.endswith(_OAUTH_VALIDATOR)):
            raise ConfigError(
                handler_key,
                handler,
                f"gregor runs no classes of Java and checks {mechanism} itself: remove it",
            )

    def _entry(self, key: str, mechanism: str, text: str) -> JaasEntry:
        try:
            entries = parse_jaas(text)
        except JaasError as error:
            raise ConfigError(key, "(hidden)", str(error)) from None
        if len(entries) > 1:
            raise ConfigError(key, "(hidden)", "has more than one login module")
        if entries[0].module_name != _MODULES[mechanism]:
            raise ConfigError(
                key, "(hidden)", f"names {entries[0].login_module}; {mechanism} needs {_MODULES[mechanism]}"
            )
        return entries[0]

    def _without_jaas(self, mechanisms_key: str, mechanism: str) -> str:
        text = f"is not set, so no client could authenticate with {mechanism}"
        if mechanism != "GSSAPI":
            return text
        others = ", ".join(name for name in _MODULES if name != mechanism)
        return (
            f"{text}, which is the default of {mechanisms_key}; set it to com.sun.security.auth.module."
            f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="..." principal="kafka/HOST@REALM"; or'
            f" set {LISTENER_PREFIX}{self.listener.lower()}.sasl.enabled.mechanisms to some of {others}"
        )

    def _kerberos(self) -> KerberosSettings:
        key = f"{LISTENER_PREFIX}{self.listener.lower()}.gssapi.{_JAAS}"
        try:
            login = KerberosLogin.of(self.jaas["GSSAPI"])
        except JaasError as error:
            raise ConfigError(key, "(hidden)", str(error)) from None
        if not login.keytab:
            raise ConfigError(
                key, "(hidden)", "needs useKeyTab=true with keyTab and principal: clients authenticate to this key"
            )
        service_key, service = self._found(SERVICE_NAME)
        check_service_name(service_key, service or "", login)
        rules_key, rules = self._found(KERBEROS_KEY)
        return KerberosSettings(login, KerberosRules(rules, rules_key), key)

    def _jwks(self) -> JwksSettings | None:
        validator_key, validator = self._found(_VALIDATOR, "OAUTHBEARER")
        if validator not in ("", _DEFAULT_VALIDATOR, _BROKER_VALIDATOR):
            raise ConfigError(
                validator_key,
                validator,
                "gregor runs no classes of Java and checks tokens itself, as BrokerJwtValidator does: remove it",
            )
        key, url = self._found(_JWKS, "OAUTHBEARER")
        entry = self.jaas.get("OAUTHBEARER")
        if not url:
            unsecured = entry is not None and any(option.startswith(_UNSECURED) for option in entry.options)
            if unsecured and validator != _BROKER_VALIDATOR:
                return None
            raise ConfigError(
                key,
                "",
                "is not set, so no token could be verified. Unsecured tokens, for tests only, need an option "
                "unsecuredValidator... in the login module of OAUTHBEARER",
            )
        if not url.startswith(("https://", "http://", "file://")):
            raise ConfigError(key, url, "must begin with https://, http:// or file://")

        options: Mapping[str, str] = {} if entry is None else entry.options
        tls_texts = tuple(sorted((option, text) for option, text in options.items() if option.startswith("ssl.")))
        if tls_texts and url.startswith("https://"):
            self._check_tls(dict(tls_texts))

        def value(key: str) -> Any:
            return self._found(key, "OAUTHBEARER")[1]

        return JwksSettings(
            url=url,
            refresh_ms=value("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            retry_ms=value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            max_retry_ms=value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
            clock_skew_s=value("sasl.oauthbearer.clock.skew.seconds"),
            audiences=frozenset(value("sasl.oauthbearer.expected.audience")),
            issuer=value("sasl.oauthbearer.expected.issuer"),
            scope_claim=value("sasl.oauthbearer.scope.claim.name"),
            subject_claim=value("sasl.oauthbearer.sub.claim.name"),
            tls_texts=tls_texts,
        )

    def _check_tls(self, texts: Mapping[str, str]) -> None:
        from gregor.config.security.tls import TlsSettings, client_context

        try:
            client_context(TlsSettings.of_client(texts))
        except ConfigError as error:
            key = f"{LISTENER_PREFIX}{self.listener.lower()}.oauthbearer.{_JAAS}"
            raise ConfigError(key, "(hidden)", f"the option {error.key}: {error.message}") from None


def check_service_name(key: str, given: str, login: KerberosLogin) -> str:
    """Return the name of the brokers' service in Kerberos, which the login module may have too, as Kafka's
    KerberosLogin does. Raises ConfigError."""
    if given and login.service_name and given != login.service_name:
        raise ConfigError(key, given, f"differs from the option serviceName={login.service_name} of the login module")
    if not (given or login.service_name):
        raise ConfigError(key, "", "is not set, nor is the option serviceName of the login module; it is usually kafka")
    return given or login.service_name
