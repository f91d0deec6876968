"""The TLS contexts of listeners, made anew for new connections when settings or files have changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.config.definitions import ConfigError
from gregor.config.security.settings import TLS_PROTOCOLS, TlsSettings
from gregor.config.security.succession import check_successor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gregor.config.broker import BrokerConfig
    from gregor.config.listeners import Listener
    from gregor.config.security.contexts import ServerContext
    from gregor.config.security.principal_rules import PrincipalRules

FILES_CHECKED_EVERY_S = 10.0


def is_encrypted(listener: Listener) -> bool:
    return listener.security_protocol in TLS_PROTOCOLS


class TlsContext:
    """The present context of one listener. Raises ConfigError if its settings or its files are refused."""

    def __init__(self, config: BrokerConfig, listener: Listener) -> None:
        self._listener = listener
        self._settings = TlsSettings.of_listener(config, listener.name)
        self._stamps = _stamps(self._settings.files)
        self.context, self.rules = _made(self._settings, listener)

    def check(self, candidate: BrokerConfig) -> None:
        """Raise ConfigError if the context cannot follow these settings."""
        settings = TlsSettings.of_listener(candidate, self._listener.name)
        if settings != self._settings or _stamps(settings.files) != self._stamps:
            self._successor(settings)

    def refresh(self, config: BrokerConfig) -> None:
        """Make the context anew if its settings or its files have changed. If that fails, the old one stays."""
        name = self._listener.name
        try:
            settings = TlsSettings.of_listener(config, name)
            stamps = _stamps(settings.files)
            if settings == self._settings and stamps == self._stamps:
                return
            self._stamps = stamps  # a file that is refused is read again when it has changed again
            made = self._successor(settings)
        except ConfigError as error:
            logger.error("the TLS context of the listener %s stays as it was: %s", name, error)
            return
        self._settings = settings
        self.context, self.rules = made
        logger.info("new connections to the listener %s get its new TLS context", name)

    def _successor(self, settings: TlsSettings) -> tuple[ServerContext, PrincipalRules | None]:
        made = _made(settings, self._listener)
        check_successor(settings, self.context.certificate, made[0].certificate)
        return made


class TlsContexts:
    """The contexts of the open TLS listeners of one broker, by name."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._contexts: dict[str, TlsContext] = {}

    def of(self, listener: Listener) -> TlsContext:
        """Return the context of a listener, which is made on first use. Raises ConfigError."""
        found = self._contexts.get(listener.name)
        if found is None:
            found = self._contexts[listener.name] = TlsContext(self._config, listener)
        return found

    def check(self, candidate: BrokerConfig) -> None:
        """Raise ConfigError if a listener of these settings could not be served."""
        for listener in filter(is_encrypted, candidate.listeners):
            present = self._contexts.get(listener.name)
            if present is None:
                TlsContext(candidate, listener)
            else:
                present.check(candidate)

    def refresh(self) -> None:
        """Follow the settings, and the files of key and trust stores."""
        names = {one.name for one in self._config.listeners if is_encrypted(one)}
        for name in self._contexts.keys() - names:
            del self._contexts[name]
        for context in self._contexts.values():
            context.refresh(self._config)

    def __bool__(self) -> bool:
        return bool(self._contexts)


def _made(settings: TlsSettings, listener: Listener) -> tuple[ServerContext, PrincipalRules | None]:
    """Return the context and, where the certificate of a client is its identity, the rules for its name."""
    from gregor.config.security.principal_rules import PrincipalRules
    from gregor.config.security.tls import server_context

    context = server_context(settings)
    if listener.security_protocol != "SSL":
        return context, None
    return context, PrincipalRules(settings.principal_mapping_rules, settings.prefix)


def _stamps(files: Iterable[str]) -> list[tuple[int, int, int] | None]:
    """Return what changes when a file is written or replaced; None for one that is missing."""
    found: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return found
