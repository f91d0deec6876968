"""The broker's end of the controller's requests, whether from the controller of this process or over the wire."""

from __future__ import annotations

import asyncio

from protocol.errors import ErrorCode
from protocol.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from replication.controller_requests import BrokerRequest
from replication.metadata_image import MetadataImage
from replication.replica_manager import ReplicaManager
from replication.topic_configs import TopicConfigs
from replication.turns import in_turns

BrokerResponse = LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse


class LocalBroker:
    """Also a BrokerChannels for a cluster of one. `broker_epoch` is to be set at registration."""

    def __init__(self, replicas: ReplicaManager, image: MetadataImage, configs: TopicConfigs) -> None:
        self.broker_epoch = -1
        self._replicas = replicas
        self._image = image
        self._configs = configs
        # One request at a time, also when an old and a new controller talk to us over connections of their own.
        self._turn = asyncio.Lock()

    async def handle(self, request: BrokerRequest) -> BrokerResponse:
        """Do what the controller asks. Requests for an earlier life of this broker are refused, and those of a
        controller that was replaced since."""
        async with self._turn:
            if 0 <= request.broker_epoch < self.broker_epoch:
                return _refused(request, ErrorCode.STALE_BROKER_EPOCH)
            if request.controller_epoch < self._replicas.controller_epoch:
                return _refused(request, ErrorCode.STALE_CONTROLLER_EPOCH)
            return await self._obey(request)

    async def _obey(self, request: BrokerRequest) -> BrokerResponse:
        if isinstance(request, LeaderAndIsrRequest):
            # Logs are opened with their topics' settings.
            await self._configs.ensure(topic.topic_name for topic in request.topic_states)
            return await in_turns(self._replicas.apply_in_steps(request))
        if isinstance(request, StopReplicaRequest):
            return await in_turns(self._replicas.stop_in_steps(request))
        response = await in_turns(self._image.apply_in_steps(request))
        if not response.error_code:
            self._replicas.controller_epoch = request.controller_epoch
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
