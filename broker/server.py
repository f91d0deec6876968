"""The daemon: start, accept, drain, stop.

Start order: data folders (locked, logs opened), metadata store, sockets bound, this broker registered, the controller's
first UpdateMetadata applied, and only then connections accepted: the first metadata response is right.
Stop order: in a cluster a controlled shutdown, no new connections, open ones closed, groups unloaded, the registration
removed, logs closed cleanly.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gregor.broker import log
from gregor.broker.admin_socket.server import ControlSocket
from gregor.broker.cluster.membership import until_informed
from gregor.broker.jobs.descriptors import raise_limit
from gregor.broker.jobs.gc_policy import GcPolicy
from gregor.broker.jobs.reload import HangUp, apply, read_again
from gregor.broker.log import logger
from gregor.broker.net.advertised_addresses import leads_astray, own_name, seen_by_clients
from gregor.broker.net.listening import BindError
from gregor.broker.net.open_listeners import OpenListeners
from gregor.broker.node.store import StartError
from gregor.broker.service_manager import ServiceManager
from gregor.broker.session_watcher.watcher import SessionWatcher
from gregor.broker.startup_report import ServerInfo, program_line, ready_status, started_lines
from gregor.broker.wiring import Node
from gregor.config.definitions import ConfigError

if TYPE_CHECKING:
    from gregor.broker.metrics.listener import MetricsListener
    from gregor.broker.parts import Broker
    from gregor.config.broker import BrokerConfig
    from gregor.config.environment import TopicWish


_SWITCH_S = 0.001


def run(
    config: BrokerConfig,
    on_ready: Callable[[ServerInfo], None] | None = None,
    first_topics: Sequence[TopicWish] = (),
    log_label: str = "",
) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the process's exit status: 1 if it could not start, or has
    failed."""
    log.configure(label=log_label, form=config[log.FORMAT_KEY], broker_id=lambda: config.broker_id)
    manager = ServiceManager()
    logger.info("%s", program_line())
    raise_limit()
    for warning in config.warnings:
        logger.warning("%s", warning)
    for note in config.notes:
        logger.info("%s", note)
    try:
        if sys.platform != "win32":
            import uvloop

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(_serve(config, manager, on_ready, first_topics, log_label))
        else:
            return asyncio.run(_serve(config, manager, on_ready, first_topics, log_label))
    except (StartError, BindError, ConfigError) as error:
        logger.error("%s", error)
        return 1


async def _serve(
    config: BrokerConfig,
    manager: ServiceManager,
    on_ready: Callable[[ServerInfo], None] | None,
    first_topics: Sequence[TopicWish],
    log_label: str,
) -> int:
    # A thread that runs Python code (decisions about many partitions, long checkpoints) releases the GIL after this
    # time.
    sys.setswitchinterval(_SWITCH_S)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    server = Server(config, SessionWatcher(log_label) if config["gregor.session.watcher"] else None)
    loop.add_signal_handler(signal.SIGHUP, HangUp(stop.set, server.begin_reload))
    manager.status("starting")
    if not await started_unless_stopped(server, stop):
        logger.info("stopped before the start was over")
        return int(server.failed)
    try:
        manager.ready(ready_status(server.info))
        if on_ready is not None:
            on_ready(server.info)
        if first_topics:
            server.make_topics(first_topics)
        await stop.wait()
        logger.info("stopping")
    finally:
        manager.stopping()
        await server.stop()
    logger.info("stopped")
    return int(server.failed)


async def started_unless_stopped(server: Server, stop: asyncio.Event) -> bool:
    """Start the server, which may have to wait for ZooKeeper, and for an old registration to end. Return False if
    `stop` was set before the end of the start. Raises as Server.start."""
    starting, stopping = asyncio.ensure_future(server.start()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
    finally:
        stopping.cancel()
    if starting.cancelled():
        return False
    starting.result()
    return True


async def _uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Await the end of the work, also if this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))
    task.result()


class Server:
    """One broker in this process's event loop. `start()` raises StartError or BindError and leaves nothing behind."""

    info: ServerInfo

    def __init__(self, config: BrokerConfig, session_watcher: SessionWatcher | None = None) -> None:
        self._began_s = time.monotonic()
        self._config = config
        self._node = Node(config, session_watcher)
        self.listeners = OpenListeners(config, self._node.advertise)
        self._control_socket: ControlSocket | None = None
        self.metrics = self._metrics_listener()

    def _metrics_listener(self) -> MetricsListener | None:
        address: str = self._config["gregor.metrics.listener"]
        if not address:
            return None
        # Loaded here: most brokers have no such listener.
        from gregor.broker.metrics.listener import MetricsListener

        return MetricsListener(address, self._config)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            if self.metrics is not None:
                await self.metrics.open()
            await self._node.open_storage()
            await self._node.join(self.listeners.bind, self.listeners.check)
            await self.listeners.accept(self._node.broker)
            if self.metrics is not None:
                node = self._node
                self.metrics.serve(node.broker, node.controller, node.loop_lag, lambda: node.is_fenced)
            if not await until_informed(self._node.broker.metadata):
                logger.warning("no controller has sent UpdateMetadata yet; clients wait for metadata until one does")
            self._node.broker.early_requests.serve_all()
        except BaseException:
            self.listeners.close()
            await _uncancelled(self._node.close())
            if self.metrics is not None:
                self.metrics.close()
            raise
        broker = self._node.broker
        broker.connections.start_sweeping(loop)
        self.info = ServerInfo(
            broker.broker_id,
            broker.cluster_id,
            self.listeners.bound,
            list(self._config.log_dirs),
        )
        gc_policy = GcPolicy()
        gc_policy.begin()
        broker.background.spawn(gc_policy.run())
        self._node.loop_lag.start(loop)
        self._control_socket = ControlSocket(self._node.control, self._config.log_dirs[0])
        await self._control_socket.start()
        elapsed_s = time.monotonic() - self._began_s
        for line in started_lines(self.info, self._config, broker.replicas, self._node.in_cluster, elapsed_s):
            logger.info("%s", line)
        self._log_addresses(broker)

    def _log_addresses(self, broker: Broker) -> None:
        """Log which addresses of this broker clients and other brokers use."""
        connect: str = self._config["zookeeper.connect"] if self._node.in_cluster else ""
        for line in seen_by_clients(sorted(broker.addresses.unadvertised), own_name(bool(connect)), bool(connect)):
            logger.info("%s", line)
        for line in leads_astray([one.host for one in self._config.advertised_listeners], connect):
            logger.warning("%s", line)

    @property
    def broker(self) -> Broker:
        """The parts of a broker that has started."""
        return self._node.broker

    @property
    def failed(self) -> bool:
        """Whether the broker ends because it has failed."""
        return self._node.failed

    def make_topics(self, wishes: Sequence[TopicWish]) -> None:
        """Create topics in the background."""
        from gregor.broker.cluster.first_topics import make_first_topics

        broker = self._node.broker
        broker.background.spawn(make_first_topics(broker.config, broker.metadata, broker.admin, broker.gate, wishes))

    def begin_reload(self) -> None:
        """Reload the properties file, beside everything else."""
        if self.listeners.serving:  # else the broker is starting, and has just read the file
            self._node.broker.background.spawn(self.reload())

    async def reload(self) -> None:
        """Read the properties file again and apply it; a line in the log for each key that differs."""
        broker = self._node.broker
        texts = await read_again(self._config, broker.background)
        if texts is not None and self.listeners.serving:
            apply(self._config, texts, broker.topic_configs.broker_changed, self.listeners.check)

    async def stop(self) -> None:
        await self._node.controlled_shutdown()
        if self.metrics is not None:
            self.metrics.stopping()
        self.listeners.close()
        self._node.loop_lag.stop()
        if self._control_socket is not None:
            await self._control_socket.stop()
        await self._node.close()
        if self.metrics is not None:
            self.metrics.close()
