"""The check of bearer tokens by the public keys of an identity provider (a JSON web key set, RFC 7517).

The keys are read on a thread, again after sasl.oauthbearer.jwks.endpoint.refresh.ms, and once more when a token names
an unknown key, as the provider may have changed its keys. A token is checked with the keys in memory, without a wait:
one that comes before the first keys is refused.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gregor.broker.log import logger
from gregor.broker.security.signatures import SignatureKey, keys_of_set
from gregor.protocol.sasl.oauthbearer import BearerToken, TokenRefused
from gregor.protocol.sasl.web_tokens import checked_claims, json_parts

if TYPE_CHECKING:
    from gregor.config.security.sasl import JwksSettings

_TIMEOUT_S = 10.0
_MAX_SET_BYTES = 4 * 1024 * 1024
_MIN_UNKNOWN_KEY_S = 60.0
"""Between two reads because of unknown keys: anyone can send a token with an invented one."""


class IdentityProvider:
    """One key set. `run` calls a function on a thread."""

    def __init__(
        self,
        settings: JwksSettings,
        clock_ms: Callable[[], int],
        run: Callable[[Callable[[str], bytes], str], Awaitable[bytes]],
    ) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        self._run = run
        self._keys: Mapping[str, SignatureKey] | None = None
        self._wanted = asyncio.Event()
        self._wanted_s = float("-inf")

    async def follow(self) -> None:
        """Read the keys until cancelled."""
        settings, retry_ms = self._settings, 0
        while True:
            self._wanted.clear()
            try:
                self._keys = keys_of_set(json.loads(await self._run(partial(_read, settings.tls_texts), settings.url)))
                retry_ms = 0
                wait_ms = settings.refresh_ms
            except Exception as error:  # whatever a provider answers must not end this task
                retry_ms = min(max(settings.retry_ms, retry_ms * 2), settings.max_retry_ms)
                wait_ms = max(1, retry_ms)
                logger.warning(
                    "the keys of %s cannot be read and stay as they were (%d): %s: %s; the broker tries again in %d ms",
                    settings.url,
                    len(self._keys or ()),
                    type(error).__name__,
                    error,
                    wait_ms,
                )
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    def validate(self, token: str) -> BearerToken:
        """Check a token as Apache Kafka's BrokerJwtValidator does; raise TokenRefused."""
        header, claims, signed, signature = json_parts(token)
        key = self._key(header)
        if not key.verifies(header.get("alg"), signed, signature):
            raise TokenRefused("its signature is wrong, or of another algorithm than its key")
        settings = self._settings
        if settings.issuer is not None and claims.get("iss") != settings.issuer:
            raise TokenRefused("it is of another issuer than sasl.oauthbearer.expected.issuer")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        audiences = {one for one in named if isinstance(one, str)}
        if (settings.audiences or audience is not None) and not settings.audiences & audiences:
            raise TokenRefused("it is for none of sasl.oauthbearer.expected.audience")
        if claims.get("iat") is None:
            raise TokenRefused("it has no time of issue (iat)")
        return checked_claims(
            claims,
            self._clock_ms() / 1000,
            settings.clock_skew_s,
            principal_claim=settings.subject_claim,
            scope_claim=settings.scope_claim,
        )

    def _key(self, header: Mapping[str, Any]) -> SignatureKey:
        keys, name = self._keys, header.get("kid")
        if keys is None:
            raise TokenRefused(f"the keys of {self._settings.url} are not read yet")
        if name is None and len(keys) == 1:
            return next(iter(keys.values()))
        key = keys.get(name) if isinstance(name, str) else None
        if key is None:
            self._read_again()
            raise TokenRefused("its key (kid) is not among those of the identity provider")
        return key

    def _read_again(self) -> None:
        now_s = self._clock_ms() / 1000
        if now_s - self._wanted_s >= _MIN_UNKNOWN_KEY_S:
            self._wanted_s = now_s
            self._wanted.set()


def _read(tls_texts: Sequence[tuple[str, str]], url: str) -> bytes:
    """Return the bytes of a key set; on a thread. The stores of a TLS connection are read anew, as they may have
    changed."""
    context = None
    if url.startswith("https:"):
        from gregor.config.security.tls import TlsSettings, client_context

        context = client_context(TlsSettings.of_client(dict(tls_texts)))
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S, context=context) as response:
        data: bytes = response.read(_MAX_SET_BYTES + 1)
    if len(data) > _MAX_SET_BYTES:
        raise ValueError(f"it has more than {_MAX_SET_BYTES} bytes")
    return data
