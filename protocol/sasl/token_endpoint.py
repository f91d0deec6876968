"""The tokens of an identity provider: fetched by HTTP where an authentication needs one, kept until they are replaced.

A token is needed only while a connection authenticates, which happens on a thread of the caller, and again before a
session ends. So it is replaced at the first authentication behind its refresh time, and nothing runs in between. A
refresh that fails leaves the present token in use until it ends.
"""

from __future__ import annotations

import http.client
import logging
import random
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from gregor.protocol.sasl.client_credentials import (
    ClientCredentials,
    TokenNotFetched,
    checked_token,
    token_of_response,
)
from gregor.protocol.sasl.mechanism import AuthenticationFailed

_MAX_RESPONSE_BYTES = 1024 * 1024
_log = logging.getLogger(__name__)

Fetch = Callable[[ClientCredentials, float], tuple[str, float]]
"""Returns a token and its end, from the settings and the present time. Raises TokenNotFetched."""


def fetch_token(settings: ClientCredentials, now_s: float) -> tuple[str, float]:
    """Send one request for a token, or read its file; blocks. Raises TokenNotFetched, and ConfigError for settings of
    TLS that cannot be applied."""
    try:
        if settings.file is not None:
            with open(settings.file, "rb") as opened:
                return checked_token(opened.read(_MAX_RESPONSE_BYTES).decode("latin-1"), now_s)
        status, data = _exchange(settings)
    except TimeoutError:
        raise TokenNotFetched("it does not respond in time", retriable=True) from None
    except (OSError, http.client.HTTPException) as error:
        raise TokenNotFetched(str(error) or type(error).__name__, retriable=True) from None
    if len(data) > _MAX_RESPONSE_BYTES:
        raise TokenNotFetched(f"its response has more than {_MAX_RESPONSE_BYTES} bytes")
    return token_of_response(status, data, now_s)


def _exchange(settings: ClientCredentials) -> tuple[int, bytes]:
    parts = urlsplit(settings.url)
    assert parts.hostname is not None
    timeout_s = settings.connect_timeout_ms / 1000
    connection = (
        http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=tls_context(settings))
        if parts.scheme == "https"
        else http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    )
    try:
        connection.connect()
        connection.sock.settimeout(settings.read_timeout_ms / 1000)
        headers, body = settings.request()
        connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers)
        response = connection.getresponse()
        return response.status, response.read(_MAX_RESPONSE_BYTES + 1)
    finally:
        connection.close()


def tls_context(settings: ClientCredentials) -> Any:
    """Return the context of a connection to the provider, made anew, as files may have changed. Raises ConfigError."""
    from gregor.config.security.tls import TlsSettings, client_context

    return client_context(TlsSettings.of_client(dict(settings.tls_texts)))


class ProviderTokens:
    """The present token of one client; a call returns it. Threads that need one at the same time may each fetch one."""

    def __init__(
        self,
        settings: ClientCredentials,
        fetch: Fetch = fetch_token,
        now_s: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._fetch = fetch
        self._now_s = now_s
        self._sleep = sleep
        self._chance = chance
        self._present: tuple[str, float, float] | None = None
        """The token, the time from which it is replaced, and its end."""

    def __call__(self) -> str:
        """Return a token that is valid now; blocks where one must be fetched. Raises AuthenticationFailed."""
        return self.with_end()[0]

    def with_end(self) -> tuple[str, float]:
        """Return the token of a call, and the time at which it ends."""
        now_s, present = self._now_s(), self._present
        if present is not None and now_s < present[1]:
            return present[0], present[2]
        in_use = present is not None and now_s < present[2]
        try:
            token, end_s = self._fetched(tries_again=not in_use)
        except TokenNotFetched as error:
            text = f"no token was fetched from {self._settings.url} for the client {self._settings.client_id}: {error}"
            if present is None or not in_use:
                raise AuthenticationFailed(text) from None
            _log.warning("%s; the present one is used, which ends in %.0f s", text, present[2] - now_s)
            return present[0], present[2]
        now_s = self._now_s()
        self._present = token, self._settings.refresh.due_s(now_s, end_s, self._chance()), end_s
        return token, end_s

    def _fetched(self, tries_again: bool) -> tuple[str, float]:
        """Fetch a token, with pauses that grow, for `sasl.login.retry.backoff.max.ms` in all."""
        settings = self._settings
        pause_ms, left_ms = settings.retry_backoff_ms, settings.retry_backoff_max_ms
        while True:
            try:
                return self._fetch(settings, self._now_s())
            except TokenNotFetched as error:
                if not tries_again or not error.retriable or left_ms <= 0:
                    raise
            self._sleep(min(pause_ms, left_ms) / 1000)
            left_ms -= pause_ms
            pause_ms *= 2


@lru_cache(maxsize=16)
def tokens_of(settings: ClientCredentials) -> ProviderTokens:
    """Return the tokens of a client, the same for all connections of a process. Raises ConfigError for settings of TLS
    that cannot be applied."""
    if settings.url.startswith("https:"):
        tls_context(settings)
    return ProviderTokens(settings)
