"""The authentication of clients on the listeners of one broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.broker.security.session import SaslSession, SecuredConnection
from gregor.broker.security.strangers import Strangers
from gregor.protocol.sasl.mechanism import GSSAPI, OAUTHBEARER
from gregor.protocol.sasl.scram import Invented

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.broker.security.identity_provider import IdentityProvider
    from gregor.broker.security.listener import Credentials, SaslListener
    from gregor.config.broker import BrokerConfig
    from gregor.config.security.sasl import JwksSettings, SaslSettings
    from gregor.protocol.sasl.oauthbearer import Validate


class Authentication:
    """Begins the session of each connection. A listener's settings are read anew for each; what they mean is kept while
    they are the same. `background` reads the keys of identity providers."""

    def __init__(
        self,
        config: BrokerConfig,
        credentials: Credentials,
        clock_ms: Callable[[], int],
        background: Background,
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._clock_ms = clock_ms
        self._background = background
        self._providers: dict[JwksSettings, IdentityProvider] = {}
        self._invented = Invented()
        self._listeners: dict[str, SaslListener] = {}
        self._strangers: dict[str, Strangers[SecuredConnection]] = {}
        """By listener name."""

    def session(self, connection: SecuredConnection, loop: asyncio.AbstractEventLoop) -> SaslSession | None:
        """Return the session of a new connection; None if its listener has no SASL. Raises
        ConfigError if the listener was changed so that it cannot."""
        name = connection.listener
        protocol = next((one.security_protocol for one in self._config.listeners if one.name == name), "")
        if not protocol.startswith("SASL_"):
            return None
        listener = self._listener(name)
        strangers = self._strangers.setdefault(name, Strangers("authentications"))
        return SaslSession(connection, listener, loop, self._clock_ms, strangers)

    def check_kerberos(self) -> None:
        """Raise ConfigError where a listener serves GSSAPI and this broker's key, or the library, is not there."""
        for listener in self._config.listeners:
            if listener.security_protocol.startswith("SASL_") and GSSAPI in self._settings(listener.name).mechanisms:
                self._listener(listener.name)

    def settings_changed(self) -> None:
        """Drop what was made from the settings, so that new connections have the present ones."""
        self._listeners.clear()

    def _listener(self, name: str) -> SaslListener:
        found = self._listeners.get(name)
        if found is None:
            from gregor.broker.security.listener import SaslListener  # a broker without SASL starts faster without

            settings = self._settings(name)
            found = SaslListener(settings, self._credentials, self._invented, self._validate(settings))
            self._listeners[name] = found
        return found

    def _settings(self, name: str) -> SaslSettings:
        from gregor.config.security.sasl import SaslSettings

        return SaslSettings.of_listener(self._config, name)

    def _validate(self, settings: SaslSettings) -> Validate | None:
        if OAUTHBEARER not in settings.mechanisms:
            return None
        if settings.jwks is not None:
            return self._provider(settings.jwks).validate
        from gregor.protocol.sasl.web_tokens import unsecured_validator

        return unsecured_validator(settings.jaas[OAUTHBEARER].options, self._clock_ms)

    def _provider(self, settings: JwksSettings) -> IdentityProvider:
        """Return the keys of an identity provider, which several listeners may share."""
        found = self._providers.get(settings)
        if found is None:
            from gregor.broker.security.identity_provider import IdentityProvider

            found = self._providers[settings] = IdentityProvider(settings, self._clock_ms, self._background.read)
            self._background.spawn(found.follow())
        return found
