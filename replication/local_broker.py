"""The broker's end of the controller's requests, whether from the controller of this process or over the wire."""

from __future__ import annotations

import time
from collections.abc import Generator

from protocol.errors import ErrorCode
from protocol.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from replication.controller_requests import BrokerRequest
from replication.metadata_image import MetadataImage
from replication.replica_manager import ReplicaManager
from replication.topic_configs import TopicConfigs

# So long the loop may be kept from other work: less than the 10 ms it must never stall.
TURN_S = 0.003

BrokerResponse = LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse


class _NextTurn:
    """Awaiting it lets the loop serve everybody else once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class LocalBroker:
    """Also a BrokerChannels for a cluster of one. `broker_epoch` is to be set at registration."""

    def __init__(self, replicas: ReplicaManager, image: MetadataImage, configs: TopicConfigs) -> None:
        self.broker_epoch = -1
        self._replicas = replicas
        self._image = image
        self._configs = configs

    async def handle(self, request: BrokerRequest) -> BrokerResponse:
        """Do what the controller asks. Requests for an earlier life of this broker are refused."""
        stale = 0 <= request.broker_epoch < self.broker_epoch
        if isinstance(request, LeaderAndIsrRequest):
            if stale:
                return LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            # Logs are opened with their topics' settings.
            await self._configs.ensure(topic.topic_name for topic in request.topic_states)
            return await self._apply(request)
        if isinstance(request, StopReplicaRequest):
            if stale:
                return StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            return self._replicas.stop(request)
        assert isinstance(request, UpdateMetadataRequest)
        if stale:
            return UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        return self._image.apply(request)

    async def _apply(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        steps = self._replicas.apply_in_steps(request)
        until = time.monotonic() + TURN_S
        while True:
            try:
                next(steps)
            except StopIteration as end:
                response: LeaderAndIsrResponse = end.value
                return response
            if time.monotonic() > until:
                await _NextTurn()
                until = time.monotonic() + TURN_S

    async def send(self, broker_id: int, request: BrokerRequest) -> BrokerResponse:
        """The controller's way to a broker of its own process."""
        return await self.handle(request)
