"""The HTTP listener of metrics and health: /metrics, /health/live and /health/ready.

An address that other machines reach is served to readers of /metrics with a password only; the paths of health show
nothing but whether the broker serves, and are open to all.

It is open from before the start of the broker's parts until after their end, so that readiness is false, with the
reason, exactly while the broker does not serve:

    state of the broker                                            ready
    starting, until its listeners accept                           no
    its listeners accept, no UpdateMetadata yet: clients wait      no
    registered, with the metadata of the cluster                   yes
    its ZooKeeper session has ended, until it is registered again  no
    fenced: ZooKeeper does not answer, and the cluster leads on    no
    ZooKeeper answers no broker: all of them continue to serve     yes
    controlled shutdown: clients are served meanwhile              yes
    its listeners are closed, until the process ends               no
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from gregor.broker.log import logger
from gregor.broker.metrics.basic_authentication import BasicAuthentication
from gregor.broker.metrics.http import HttpConnections, Request, Response, text_response
from gregor.broker.metrics.page import OPENMETRICS_TEXT, PROMETHEUS_TEXT
from gregor.broker.metrics.scrape import ScrapedBroker, Scraper
from gregor.broker.net.advertised_addresses import is_loopback
from gregor.broker.net.listening import backlog, bind
from gregor.config.definitions import ConfigError
from gregor.config.listeners import METRICS_LISTENER, METRICS_PASSWORD_FILE, metrics_listener

if TYPE_CHECKING:
    import socket

    from gregor.broker.jobs.loop_lag import LagMeter
    from gregor.config.broker import BrokerConfig
    from gregor.replication.controller.loop import ControllerLoop
    from gregor.replication.partition.controller_request_handler import ControllerRequestHandler

_PATHS = "this listener has /metrics, /health/live and /health/ready\n"
_PASSWORD_NEEDED = f"user or password is wrong; {METRICS_PASSWORD_FILE} of the broker names the file with both\n"
_OPENMETRICS = b"application/openmetrics-text"


class ObservedBroker(ScrapedBroker, Protocol):
    """The parts of the broker that metrics and readiness are made of."""

    @property
    def broker_id(self) -> int: ...
    @property
    def controller_requests(self) -> ControllerRequestHandler: ...


class MetricsListener:
    """`open()`, `serve(...)` once the broker serves, `stopping()`, `close()`."""

    def __init__(self, address: str, config: BrokerConfig) -> None:
        self._listener = metrics_listener(address)
        self._config = config
        self._delay_s: float = config["connection.failed.authentication.delay.ms"] / 1000
        self._authentication: BasicAuthentication | None = None
        self._connections = HttpConnections(self._respond)
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._broker: ObservedBroker | None = None
        self._scraper: Scraper | None = None
        self._is_fenced: Callable[[], bool] = bool
        self._not_serving = "the broker is starting"

    async def open(self) -> None:
        """Bind and accept. Raises BindError, and ConfigError for an address that would be open to other machines."""
        password_file: str = self._config["gregor.metrics.password.file"]
        if password_file:
            self._authentication = BasicAuthentication.of_file(password_file)
        self._sockets = bind(self._listener, self._config)
        try:
            self._check_exposure()
        except ConfigError:
            for sock in self._sockets:
                sock.close()
            raise
        for sock in self._sockets:
            server = await asyncio.start_server(self._connections.accepted, sock=sock, backlog=backlog(self._config))
            self._servers.append(server)
        logger.info("metrics and health are served on %s", ", ".join(self.urls))

    def _check_exposure(self) -> None:
        open_to = [host for host in (sock.getsockname()[0] for sock in self._sockets) if not is_loopback(host)]
        if open_to and self._authentication is None:
            raise ConfigError(
                METRICS_LISTENER,
                self._config[METRICS_LISTENER],
                f"would show the names of topics and groups to everyone who reaches {open_to[0]}; set"
                f" {METRICS_PASSWORD_FILE} to a file with USER:PASSWORD, or give a port alone, which serves this"
                " machine only",
            )

    @property
    def urls(self) -> list[str]:
        """The addresses as bound."""
        found = []
        for sock in self._sockets:
            host, port = sock.getsockname()[:2]
            found.append(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        return found

    def serve(
        self,
        broker: ObservedBroker,
        controller: ControllerLoop,
        lag: LagMeter,
        is_fenced: Callable[[], bool] = bool,
    ) -> None:
        """Show the metrics of this broker: its listeners are open. `is_fenced`: whether the cluster considers it dead
        while ZooKeeper does not answer it."""
        self._is_fenced = is_fenced
        self._broker = broker
        self._scraper = Scraper(broker, controller, lag)

    def stopping(self) -> None:
        """Show that the broker ends: its listeners are about to be closed."""
        self._not_serving = "the broker is stopping"
        self._broker = None

    def close(self) -> None:
        for server in self._servers:
            server.close()
        self._connections.close()
        if self._scraper is not None:
            self._scraper.close()

    async def _respond(self, request: Request) -> Response:
        if request.path == "/metrics":
            authentication = self._authentication
            if authentication is not None and not authentication.admits(request.headers.get(b"authorization", b"")):
                await asyncio.sleep(self._delay_s)
                return text_response(HTTPStatus.UNAUTHORIZED, _PASSWORD_NEEDED)
            return await self._metrics(_OPENMETRICS in request.headers.get(b"accept", b""))
        if request.path == "/health/live":
            return text_response(HTTPStatus.OK, "live\n")
        if request.path == "/health/ready":
            reason = self.why_not_ready()
            if reason:
                return text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}\n")
            return text_response(HTTPStatus.OK, "ready\n")
        return text_response(HTTPStatus.NOT_FOUND, _PATHS)

    def why_not_ready(self) -> str:
        """Return why the broker does not serve; "" while it does."""
        broker = self._broker
        if broker is None:
            return self._not_serving
        if not broker.controller_requests.is_registered:
            return "the broker is not registered in its cluster: its ZooKeeper session has ended"
        if not broker.metadata.is_informed:
            return "no controller has sent the metadata of the cluster yet"
        if not broker.metadata.is_alive(broker.broker_id) or self._is_fenced():
            return "the cluster considers this broker dead"
        return ""

    async def _metrics(self, openmetrics: bool) -> Response:
        if self._scraper is None or self._broker is None:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"no metrics: {self._not_serving}\n")
        pieces = await self._scraper.scrape(openmetrics=openmetrics)
        return Response(HTTPStatus.OK, OPENMETRICS_TEXT if openmetrics else PROMETHEUS_TEXT, pieces)
