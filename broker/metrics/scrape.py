"""Makes the page of one scrape: all families of a broker that serves, in turns with the broker's other work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from gregor.broker.metrics.client_telemetry import ClientLines
from gregor.broker.metrics.cluster import ClusterView
from gregor.broker.metrics.lag.clients import ClientLagLines, ClientPositions
from gregor.broker.metrics.lag.first_unread import FirstUnread
from gregor.broker.metrics.lag.groups import GroupView
from gregor.broker.metrics.lag.log_ends import LogEnds
from gregor.broker.metrics.page import Page
from gregor.broker.metrics.partitions import PartitionLines
from gregor.broker.metrics.process import ProcessView
from gregor.broker.metrics.repeated_batches import collect_repeats
from gregor.broker.metrics.table import FAMILIES
from gregor.broker.metrics.traffic import TrafficLines
from gregor.protocol.turns import Steps
from gregor.replication.channels.inter_broker_security import security_between_brokers

if TYPE_CHECKING:
    from gregor.broker.fetch.sessions import FetchSessions
    from gregor.broker.jobs.background import Background
    from gregor.broker.jobs.loop_lag import LagMeter
    from gregor.broker.net.connections import Connections
    from gregor.broker.telemetry.telemetry import Telemetry
    from gregor.config.broker import BrokerConfig
    from gregor.coordinator.group.coordinator import GroupCoordinator
    from gregor.replication.controller.loop import ControllerLoop
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.folders.manager import LogManager


class ScrapedBroker(Protocol):
    """The parts of the broker that metrics are made of."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def replicas(self) -> ReplicaManager: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def metadata(self) -> MetadataImage: ...
    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def fetch_sessions(self) -> FetchSessions: ...
    @property
    def telemetry(self) -> Telemetry | None: ...
    def now_ms(self) -> int:
        """Return the time, in ms since 1970."""

    @property
    def connections(self) -> Connections: ...
    @property
    def background(self) -> Background: ...


class Scraper:
    """Serves one scrape at a time; another one waits for its end."""

    def __init__(self, broker: ScrapedBroker, controller: ControllerLoop, lag: LagMeter) -> None:
        self._background = broker.background
        self._traffic = TrafficLines(broker.replicas.traffic)
        self._repeats = broker.replicas.traffic.repeats
        self._controller = controller
        self._partitions = PartitionLines(broker.replicas)
        self._cluster = ClusterView(broker.replicas, broker.logs, broker.metadata)
        security = security_between_brokers(broker.config)
        self._ends = LogEnds(broker.config, broker.replicas, broker.metadata, broker.background, security)
        self._unread = FirstUnread(broker.config, broker.replicas, broker.metadata, broker.background, security)
        self._groups = GroupView(
            broker.groups, self._ends.own, self._ends.of, self._unread.time_ms, broker.metadata.topic
        )
        positions = ClientPositions(broker.fetch_sessions, broker.replicas, broker.metadata, broker.now_ms)
        self._clients = ClientLagLines(positions)
        self._process = ProcessView(broker.connections, lag)
        self._telemetry = broker.telemetry
        self._scraping = asyncio.Lock()

    async def scrape(self, *, openmetrics: bool) -> list[bytes]:
        """Return the text of all families, in pieces."""
        async with self._scraping:
            await self._ends.refresh(await self._background.search(self._groups.others()))
            await self._unread.refresh(await self._background.search(self._groups.unread()))
            return await self._background.search(self._steps(openmetrics))

    def close(self) -> None:
        """Close the connections to other brokers."""
        self._ends.close()
        self._unread.close()

    def _steps(self, openmetrics: bool) -> Steps[list[bytes]]:
        clients = None if self._telemetry is None else ClientLines(self._telemetry)
        if clients is not None:
            yield from clients.prepare()
        page = Page(FAMILIES if clients is None else FAMILIES | clients.families)
        total = yield from self._traffic.collect(page)
        figures = yield from self._partitions.collect(page)
        yield from self._cluster.collect(page, figures, total, self._controller)
        yield from self._groups.collect(page)
        yield from self._clients.collect(page)
        yield from collect_repeats(page, self._repeats)
        yield from self._process.collect(page, figures)
        if clients is not None:
            yield from clients.collect(page)
        return (yield from page.render(openmetrics=openmetrics))
