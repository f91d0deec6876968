"""The passwords among a broker's dynamic settings: encrypted in the nodes, in clear in memory.

Every client of ZooKeeper may be able to read a node, so that a password is never stored there in clear. The embedded
store is a file of the broker's own user; there passwords are encrypted where password.encoder.secret is set, and else
stored as they were given, as in Apache Kafka 4's metadata log.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from gregor.config.broker import BrokerConfig, broker_definition
from gregor.config.security.password_encoder import OLD_SECRET, SECRET, PasswordEncoder, PasswordError, is_encoded

OnThread = Callable[[Callable[[str], str], str], Awaitable[str]]
"""Calls a function with a text on a thread."""

_log = logging.getLogger(__name__)


async def at_once(function: Callable[[str], str], text: str) -> str:
    return function(text)


class BrokerPasswords:
    """Decrypts and encrypts the passwords of one broker's node. A text that was decrypted once is remembered."""

    def __init__(self, config: BrokerConfig, on_thread: OnThread = at_once) -> None:
        self._config = config
        self._on_thread = on_thread
        self._known: dict[str, str] = {}

    async def decoded(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a node with their passwords in clear. One that cannot be decrypted is left out, and
        named in the log; the node keeps it."""
        found = dict(texts)
        for key in self._keys(texts):
            try:
                found[key] = await self._decoded(texts[key])
            except ValueError as error:
                del found[key]
                _log.error(
                    "The dynamic setting %s of this broker is ignored, because its password cannot be decrypted: %s."
                    " The store keeps it. Check %s (and %s after a change of it), or set the password again.",
                    *(key, error, SECRET, OLD_SECRET),
                )
        self._known = {text: clear for text, clear in self._known.items() if text in texts.values()}
        return found

    async def encoded(self, texts: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """Return the settings as the node has them. `stored` is its content: a password that has not changed keeps its
        text."""
        found = dict(texts)
        for key in self._keys(texts) if self._encrypts else ():
            before = stored.get(key, "")
            found[key] = before if self._known.get(before) == texts[key] else await self._encoded(texts[key])
        return found

    async def reencoded(self, stored: Mapping[str, str]) -> dict[str, str] | None:
        """Return the content of a node after a change of the secret: what password.encoder.old.secret decrypts, and in
        the embedded store what is there in clear, is encrypted with the new one. None if nothing is."""
        if not self._config[SECRET]:
            return None
        old = PasswordEncoder.of(self._config.__getitem__, OLD_SECRET)
        found = dict(stored)
        for key in self._keys(stored):
            if self._is_clear(stored[key]):
                found[key] = await self._encoded(stored[key])
            elif old is not None:
                try:
                    clear = await self._on_thread(old.decode, stored[key])
                except PasswordError:
                    continue  # encrypted with the new secret already, or `decoded` reports it
                found[key] = await self._encoded(clear)
        return found if found != stored else None

    @property
    def _encrypts(self) -> bool:
        return bool(self._config["zookeeper.connect"]) or bool(self._config[SECRET])

    @property
    def _encoder(self) -> PasswordEncoder | None:
        """None also for an empty secret: anyone could decrypt what it encrypts. An empty old one is used, as Apache
        Kafka accepts it and may have encrypted with it."""
        return PasswordEncoder.of(self._config.__getitem__) if self._config[SECRET] else None

    def _is_clear(self, text: str) -> bool:
        return not self._config["zookeeper.connect"] and not is_encoded(text)

    def _keys(self, texts: Mapping[str, str]) -> list[str]:
        """Return the keys of passwords."""
        definitions = {key: broker_definition(key) for key in texts}
        return [key for key, one in definitions.items() if one is not None and one.sensitive]

    async def _decoded(self, text: str) -> str:
        if self._is_clear(text):
            return text
        if text not in self._known:
            encoder = self._encoder
            if encoder is None:
                raise ValueError(f"{SECRET} is not set")
            self._known[text] = await self._on_thread(encoder.decode, text)
        return self._known[text]

    async def _encoded(self, clear: str) -> str:
        encoder = self._encoder
        assert encoder is not None, "BrokerConfig.check_dynamic has refused it"
        text = await self._on_thread(encoder.encode, clear)
        self._known[text] = clear
        return text
