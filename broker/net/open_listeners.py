"""The open listeners: bound at the start, and changed later by the dynamic setting `listeners`.

The connections of a listener that is removed end; those of one that moves to another address stay.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from gregor.broker.log import logger
from gregor.broker.net.connection import Connection
from gregor.broker.net.listening import BindError, backlog, bind
from gregor.broker.net.tls.contexts import FILES_CHECKED_EVERY_S, TlsContexts, is_encrypted
from gregor.config.definitions import ConfigError
from gregor.config.listeners import listener_text

if TYPE_CHECKING:
    from gregor.broker.net.context import ListenersContext
    from gregor.broker.net.tls.acceptor import TlsAcceptor
    from gregor.config.broker import BrokerConfig
    from gregor.config.listeners import Listener

_DYNAMIC_ADDRESSES = ("listeners", "advertised.listeners", "listener.security.protocol.map")
_TRY_AGAIN_S = 30
_LAST_ANSWERS_S = 1.0
"""Time for the last responses on the connections of a removed listener, perhaps to its very removal."""


class OpenListeners:
    """The listeners of one broker. `announce(ports)` registers their new addresses in the cluster."""

    def __init__(self, config: BrokerConfig, announce: Callable[[dict[str, int]], Coroutine[Any, Any, None]]) -> None:
        self._config = config
        self._announce = announce
        self._sockets: dict[Listener, list[socket.socket]] = {}
        self._servers: dict[Listener, list[asyncio.Server | TlsAcceptor]] = {}
        self._tls = TlsContexts(config)
        self._files_timer: asyncio.TimerHandle | None = None
        self._broker: ListenersContext | None = None
        self._left_aside = False

    def bind(self) -> dict[str, int]:
        """Bind the configured listeners and return the ports by listener name. Dynamic addresses that cannot be bound
        are not applied. Raises BindError, and leaves nothing bound.
        """
        try:
            self._bind_all()
        except BindError as error:
            left = self._without_dynamic()
            if not left:
                raise
            logger.error("dynamic addresses cannot be used: %s", error)
            self._log_not_applied(left)
            self._bind_all()
            self._left_aside = True
        return self.ports

    def _bind_all(self) -> None:
        try:
            for listener in self._config.listeners:
                problem = self._bind(listener)
                if problem is not None:
                    raise problem
        except BindError:
            self.close()
            raise

    @property
    def serving(self) -> bool:
        """Whether connections are accepted."""
        return self._broker is not None

    @property
    def ports(self) -> dict[str, int]:
        """The ports by listener name."""
        return {one.name: _port(sockets) for one, sockets in self._sockets.items()}

    @property
    def bound(self) -> list[tuple[str, str, int]]:
        """(name, host, port) of each socket."""
        return [(one.name, *sock.getsockname()[:2]) for one, sockets in self._sockets.items() for sock in sockets]

    async def accept(self, broker: ListenersContext) -> None:
        """Accept connections, and follow the settings from now on."""
        self._broker = broker
        for listener in list(self._sockets):
            await self._serve(listener, broker)
        broker.topic_configs.on_broker_changed.append(self.follow)
        self.follow()
        self._follow_files()
        if self._left_aside:
            self._try_again_later()

    async def _serve(self, listener: Listener, broker: ListenersContext) -> None:
        if is_encrypted(listener):
            # Loaded here: most brokers have no TLS listener.
            from gregor.broker.net.tls.acceptor import TlsAcceptor

            tls = self._tls.of(listener)
            self._servers[listener] = [
                TlsAcceptor(broker, listener.name, sock, tls) for sock in self._sockets[listener]
            ]
            return
        loop = asyncio.get_running_loop()
        factory = partial(Connection, broker, listener.name)
        self._servers[listener] = [
            # Without this argument the loop would listen again with its default, 100.
            await loop.create_server(factory, sock=sock, backlog=backlog(self._config))
            for sock in self._sockets[listener]
        ]

    # -- changes ---------------------------------------------------------------------------------------------------

    def check(self, candidate: BrokerConfig) -> None:
        """Raises ConfigError if a listener of these settings that is not open yet cannot be opened, or the certificates
        of one cannot be used."""
        self._tls.check(candidate)
        leaving = {_port(sockets) for one, sockets in self._sockets.items() if one not in candidate.listeners}
        for listener in candidate.listeners:
            if listener in self._sockets or listener.port in leaving:
                continue
            try:
                found = bind(listener, self._config)
            except BindError as error:
                raise ConfigError("listeners", listener.text, str(error)) from None
            for sock in found:
                sock.close()

    def follow(self) -> None:
        """Open and close listeners as the settings have changed. The sockets listen when this returns."""
        self._tls.refresh()
        wanted = self._config.listeners
        gone = [one for one in self._sockets if one not in wanted]
        new = [one for one in wanted if one not in self._sockets]
        if not (gone or new) or self._broker is None:
            return
        opened = [one for listener in new for one in self._open(listener, gone)]
        missing = {one.name for one in wanted if one not in self._sockets}
        for listener in gone:
            if (
                listener in self._sockets and listener.name not in missing
            ):  # a listener that cannot move keeps its address
                self._close(listener)
        for name in {one.name for one in gone} - {one.name for one in self._sockets}:
            asyncio.get_running_loop().call_later(_LAST_ANSWERS_S, self._broker.connections.close_listener, name)
        logger.info("listening on %s", ", ".join(listener_text(*one) for one in self.bound))
        self._broker.background.spawn(self._serve_and_announce(opened, self._broker))
        if missing:
            self._go_without(self._broker)

    def _follow_files(self) -> None:
        """Follow the files of key and trust stores, as their settings are followed."""
        if self._broker is not None:
            self._tls.refresh()
            self._files_timer = asyncio.get_running_loop().call_later(FILES_CHECKED_EVERY_S, self._follow_files)

    def _go_without(self, broker: ListenersContext) -> None:
        """Do not apply dynamic addresses that cannot be opened: clients would be sent there in vain, and the addresses
        can only be altered over a connection.
        """
        left = self._without_dynamic()
        if not left:
            return
        self._log_not_applied(left)
        self.follow()
        broker.background.spawn(self._serve_and_announce([], broker))
        self._try_again_later()

    def _without_dynamic(self) -> dict[str, str]:
        """Drop the dynamic addresses, and return their texts."""
        try:
            return self._config.drop_dynamic(_DYNAMIC_ADDRESSES)
        except ConfigError as error:
            logger.error(
                "the dynamic ones of the settings %s stay applied, although not all of their addresses can be opened,"
                " because the other settings contradict each other without them: %s. Free the addresses, or alter all"
                " of these settings at once",
                ", ".join(_DYNAMIC_ADDRESSES), error,
            )  # fmt: skip
            return {}

    def _log_not_applied(self, left: dict[str, str]) -> None:
        logger.error(
            "%s: these dynamic settings are not applied until all their addresses are free; the broker tries every"
            " %d s. To remove them: gregor configs --alter --broker %d --delete-config %s",
            ", ".join(f"{key}={text}" for key, text in left.items()),
            _TRY_AGAIN_S,
            self._config.broker_id,
            ",".join(left),
        )

    def _try_again_later(self) -> None:
        asyncio.get_running_loop().call_later(_TRY_AGAIN_S, self._try_again)

    def _try_again(self) -> None:
        if self._broker is not None:
            self._broker.background.spawn(self._broker.topic_configs.refresh_broker())

    def _open(self, listener: Listener, gone: list[Listener]) -> list[Listener]:
        """Open a listener, after closing those of `gone` that have its port. Return the opened listeners: the closed
        ones again, if the new one cannot be opened.
        """
        problem = self._bind(listener)
        rivals = []
        if problem is not None:
            rivals = [one for one in gone if one in self._sockets and _port(self._sockets[one]) == listener.port]
            for rival in rivals:
                self._close(rival)
            if rivals:
                problem = self._bind(listener)
        if problem is None:
            return [listener]
        logger.error("a listener was not opened: %s", problem)
        return [rival for rival in rivals if self._bind(rival) is None]

    def _bind(self, listener: Listener) -> BindError | None:
        try:
            if is_encrypted(listener):
                self._tls.of(listener)
            self._sockets[listener] = bind(listener, self._config)
        except BindError as error:
            return error
        except ConfigError as error:
            return BindError(f"{listener.text} cannot be served: {error}")
        return None

    async def _serve_and_announce(self, opened: list[Listener], broker: ListenersContext) -> None:
        for listener in opened:
            if listener in self._sockets:
                await self._serve(listener, broker)
        await self._announce(self.ports)

    def _close(self, listener: Listener) -> None:
        for server in self._servers.pop(listener, ()):
            server.close()
        for sock in self._sockets.pop(listener):
            sock.close()

    def close(self) -> None:
        """Close all listeners; open connections stay."""
        self._broker = None
        if self._files_timer is not None:
            self._files_timer.cancel()
        for listener in list(self._sockets):
            self._close(listener)


def _port(sockets: list[socket.socket]) -> int:
    """Return the port, which is the same for all sockets of a listener."""
    port: int = sockets[0].getsockname()[1]
    return port
