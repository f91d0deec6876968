"""The broker's end of the controller's requests, whether from the controller of this process or over the wire."""

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
"""The connection of the controller in this very process, which has none."""


class ControllerRequestHandler:
    """Also a BrokerChannels for a cluster of one. `registered` is to be called at each registration: before the first
    one nothing is done, as it cannot be told whether this life of the broker is meant or the one before, whose
    registration may still stand. That one had records which this one may have lost."""

    def __init__(
        self,
        replicas: ReplicaManager,
        image: MetadataImage,
        configs: TopicConfigs,
        gate: Gate,
        hold_back: Callable[[BrokerRequest], BrokerRequest] = lambda request: request,
    ) -> None:
        """`hold_back` returns the part of a request that can be applied now; it keeps the rest."""
        self._hold_back = hold_back
        self._broker_epoch = NOT_REGISTERED
        self._registered = asyncio.Event()
        self._replicas = replicas
        self._image = image
        self._configs = configs
        self._gate = gate
        # One request at a time, also when an old and a new controller talk to us over connections of their own.
        self._turn = asyncio.Lock()
        self._latest = -1, OWN
        """A controller's epoch, and the number of the latest connection on which it spoke."""

    @property
    def broker_epoch(self) -> int:
        """NOT_REGISTERED before the first registration."""
        return self._broker_epoch

    def registered(self, epoch: int) -> None:
        """This broker is registered, with this epoch."""
        self._broker_epoch = epoch
        self._registered.set()

    async def handle(self, request: BrokerRequest, connection_number: int = OWN) -> BrokerResponse:
        """Do what the controller asks. Requests for an earlier life of this broker are refused, and those of a
        controller that was replaced since.

        A controller that got no answer connects anew and says it again. What it had said on the connection before may
        come later still, by then overtaken by what it said since: it is refused. `connection_number` grows with each
        connection.
        """
        await self._registered.wait()
        async with self._turn:
            if 0 <= request.broker_epoch < self.broker_epoch:
                return _refused(request, ErrorCode.STALE_BROKER_EPOCH)
            said = request.controller_epoch, connection_number
            if request.controller_epoch < self._replicas.controller_epoch or said < self._latest:
                return _refused(request, ErrorCode.STALE_CONTROLLER_EPOCH)
            self._latest = said
            return await self._obey(request)

    async def _obey(self, request: BrokerRequest) -> BrokerResponse:
        if isinstance(request, LeaderAndIsrRequest):
            # Logs are opened with their topics' settings.
            await self._configs.ensure(topic.topic_name for topic in request.topic_states)
        request = self._hold_back(request)
        if isinstance(request, LeaderAndIsrRequest):
            return await self._gate.run(self._replicas.apply(request))
        if isinstance(request, StopReplicaRequest):
            return await self._gate.run(self._replicas.stop(request))
        response = await self._gate.run(self._image.apply(request))
        if not response.error_code:
            self._replicas.follow_controller(request.controller_epoch)
        return response

    async def send(self, broker_id: int, request: BrokerRequest) -> BrokerResponse:
        """The controller's way to a broker of its own process."""
        return await self.handle(request)

    def close(self, broker_id: int) -> None:
        """There is no connection."""


def _refused(request: BrokerRequest, error: ErrorCode) -> BrokerResponse:
    if isinstance(request, LeaderAndIsrRequest):
        return LeaderAndIsrResponse(error_code=error)
    if isinstance(request, StopReplicaRequest):
        return StopReplicaResponse(error_code=error)
    return UpdateMetadataResponse(error_code=error)
