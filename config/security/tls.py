"""TLS of listeners: its settings, and the contexts of OpenSSL made from them.

`ssl` is imported when the first context is made: a broker without TLS listeners does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.config.security.settings import TLS_PROTOCOLS, TlsSettings

if TYPE_CHECKING:
    import ssl

    from gregor.config.security.contexts import ServerContext

__all__ = ["TLS_PROTOCOLS", "TlsSettings", "client_context", "server_context"]


def server_context(settings: TlsSettings) -> ServerContext:
    """Return the context of connections that clients open; raise ConfigError, which names the key and the remedy."""
    from gregor.config.security import contexts

    return contexts.make_server_context(settings)


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of connections to other brokers; raise ConfigError, which names the key and the remedy.

    Where ``ssl.endpoint.identification.algorithm`` is empty, the context does not check the name of the server. A
    certificate is presented only where a key store is configured.
    """
    from gregor.config.security import contexts

    return contexts.make_client_context(settings)
