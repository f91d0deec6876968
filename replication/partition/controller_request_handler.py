"""Applies the controller's requests to this broker, from the controller of this process or over the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from gregor.protocol.turns import Gate
from gregor.replication.channels.messages import BrokerRequest, BrokerResponse
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.partition.replica_manager import ReplicaManager
from gregor.replication.store.topic_configs import TopicConfigs

NOT_REGISTERED = -1
OWN = -1
"""The connection number of the controller in this process, which has no connection."""


class ControllerRequestHandler:
    """Also the BrokerChannels of a single broker. Its owner calls `registered` at each registration, and
    `session_ended` when a registration has ended with its session.

    No request is applied before the first one: it may be meant for this broker before its restart, as that registration
    may still exist, and the broker may have lost records since. The same holds after the end of a session: the requests
    for the registration that ended with it are refused, also those that have begun, as other brokers may lead by now.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        image: MetadataImage,
        configs: TopicConfigs,
        gate: Gate,
        hold_back: Callable[[BrokerRequest], BrokerRequest] = lambda request: request,
    ) -> None:
        """`hold_back` returns the part of a request that can be applied now, and keeps the rest."""
        self._hold_back = hold_back
        self._broker_epoch = NOT_REGISTERED
        self._ended_sessions = 0
        self._registered = asyncio.Event()
        self._replicas = replicas
        self._image = image
        self._configs = configs
        self._gate = gate
        # One request at a time, also when an old and a new controller send requests over connections of their own.
        self._turn = asyncio.Lock()
        self._latest = -1, OWN
        """A controller's epoch, and the number of the latest connection over which it sent a request."""

    @property
    def broker_epoch(self) -> int:
        """NOT_REGISTERED before the first registration."""
        return self._broker_epoch

    @property
    def min_request_epoch(self) -> int:
        """Requests for an epoch below it are for a registration that has ended. After the end of a session all are."""
        return self._broker_epoch if self._registered.is_set() else self._broker_epoch + 1

    def registered(self, epoch: int) -> None:
        """Record the epoch of this broker's new registration."""
        self._broker_epoch = epoch
        self._registered.set()

    @property
    def is_registered(self) -> bool:
        """Whether the present registration is this broker's, so that it applies requests of the controller."""
        return self._registered.is_set()

    def session_ended(self) -> None:
        """Apply no request until this broker is registered again, and none for the registration that has ended."""
        self._ended_sessions += 1
        self._registered.clear()

    async def handle(self, request: BrokerRequest, connection_number: int = OWN) -> BrokerResponse:
        """Apply a request, unless it is for an earlier registration of this broker, or from a replaced controller.

        A controller that got no response connects anew and repeats its request. The one that it sent over the earlier
        connection may arrive after that, when later requests have overtaken it: it is refused. `connection_number`
        grows with each connection.
        """
        async with self._turn:
            await self._registered.wait()
            if 0 <= request.broker_epoch < self.broker_epoch:
                return _refused(request, ErrorCode.STALE_BROKER_EPOCH)
            sender = request.controller_epoch, connection_number
            if request.controller_epoch < self._replicas.controller_epoch or sender < self._latest:
                return _refused(request, ErrorCode.STALE_CONTROLLER_EPOCH)
            self._latest = sender
            return await self._apply(request)

    async def _apply(self, request: BrokerRequest) -> BrokerResponse:
        session = self._ended_sessions
        if isinstance(request, LeaderAndIsrRequest):
            # Logs are opened with their topics' settings. Without a connection to the metadata store this waits for
            # it, perhaps for longer than the session lasts.
            await self._configs.ensure((topic.topic_name, topic.topic_id) for topic in request.topic_states)
            if session != self._ended_sessions:
                return _refused(request, ErrorCode.STALE_BROKER_EPOCH)
        request = self._hold_back(request)
        if isinstance(request, LeaderAndIsrRequest):
            return await self._assign(request, session)
        if isinstance(request, StopReplicaRequest):
            return await self._gate.run(self._replicas.stop(request))
        response = await self._gate.run(self._image.apply(request))
        if not response.error_code:
            self._replicas.follow_controller(request.controller_epoch)
        return response

    async def _assign(self, request: LeaderAndIsrRequest, session: int) -> LeaderAndIsrResponse:
        response = await self._gate.run(self._replicas.apply(request))
        if session != self._ended_sessions:
            # Some partitions became leaders after those of that time had resigned.
            leading = [key for key, partition in self._replicas.partitions.items() if partition.is_leader]
            await self._gate.run(self._replicas.resign(leading))
            response = LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        return response

    async def send(self, broker_id: int, request: BrokerRequest) -> BrokerResponse:
        """Handle a request of the controller in this process."""
        return await self.handle(request)

    def close(self, broker_id: int) -> None:
        """Do nothing: there is no connection."""


def _refused(request: BrokerRequest, error: ErrorCode) -> BrokerResponse:
    if isinstance(request, LeaderAndIsrRequest):
        return LeaderAndIsrResponse(error_code=error)
    if isinstance(request, StopReplicaRequest):
        return StopReplicaResponse(error_code=error)
    return UpdateMetadataResponse(error_code=error)
