"""The security of connections to other brokers: that of the inter-broker listener, with this broker as the client."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from gregor.config.definitions import ConfigError
from gregor.protocol.channel_security import PLAINTEXT, PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.sasl.mechanism import GSSAPI, AuthenticationFailed

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.config.security.tls import TlsSettings
    from gregor.protocol.sasl.mechanism import ClientMechanism

MECHANISM = "sasl.mechanism.inter.broker.protocol"
_WITH_TLS = ("SSL", "SASL_SSL")
_WITH_SASL = ("SASL_PLAINTEXT", "SASL_SSL")

_log = logging.getLogger(__name__)


def security_between_brokers(config: BrokerConfig) -> ChannelSecurity:
    """Return the security of connections to the inter-broker listener of other brokers. Raises ConfigError.

    A change of the settings, or of the files with keys and certificates, has an effect on connections from then on.
    """
    name = config.inter_broker_listener_name
    protocol = next(one.security_protocol for one in config.listeners if one.name == name)
    if protocol == PLAINTEXT:
        return PLAINTEXT_CHANNEL
    tls = _Contexts(config, name) if protocol in _WITH_TLS else None
    new_mechanism = None
    if protocol in _WITH_SASL:
        make_mechanism(config, name)  # so that the broker does not start where no connection could be authenticated

        def new_mechanism(host: str) -> ClientMechanism:
            try:
                return make_mechanism(config, name, host)
            except ConfigError as error:
                raise AuthenticationFailed(str(error)) from None

    return ChannelSecurity(protocol, None if tls is None else tls.current, new_mechanism)


def make_mechanism(config: BrokerConfig, listener: str, host: str = "localhost") -> ClientMechanism:
    """Return the SASL mechanism with which this broker authenticates to one on a host. Raises ConfigError."""
    from gregor.config.security.sasl import SaslSettings
    from gregor.protocol.sasl.clients import client_mechanism
    from gregor.protocol.sasl.kerberos import KerberosMissing

    name: str = config[MECHANISM]
    settings = SaslSettings.of_listener(config, listener)
    if name not in settings.mechanisms:
        raise ConfigError(
            MECHANISM,
            name,
            f"the inter-broker listener {listener} serves {', '.join(settings.mechanisms)}; set this key to one"
            f" of them, or add it to listener.name.{listener.lower()}.sasl.enabled.mechanisms",
        )
    key = f"listener.name.{listener.lower()}.{name.lower()}.sasl.jaas.config"
    try:
        return client_mechanism(name, settings.jaas.get(name), settings.login_texts, host=host, now_s=time.time)
    except KerberosMissing as error:
        raise ConfigError(MECHANISM, name, str(error)) from None
    except AuthenticationFailed as error:
        purpose = "" if name == GSSAPI else "; with them this broker authenticates to the others"
        raise ConfigError(key, "(hidden)", f"{error}{purpose}") from None


class _Contexts:
    """The present context of TLS: made anew where the settings, or a file that they name, have changed."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._listener = listener
        self._made_of = self._settings()
        self._context = self._make()

    def current(self) -> Any:
        made_of = self._settings()
        if made_of != self._made_of:
            self._made_of = made_of
            try:
                self._context = self._make()
            except ConfigError as error:
                _log.error("Connections to other brokers use the TLS settings of before: the new ones fail: %s", error)
        return self._context

    def _make(self) -> Any:
        from gregor.config.security.tls import client_context

        return client_context(self._made_of[0])

    def _settings(self) -> tuple[TlsSettings, list[int]]:
        from gregor.config.security.tls import TlsSettings

        settings = TlsSettings.of_listener(self._config, self._listener)
        return settings, [_modified_ns(path) for path in settings.files]


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
