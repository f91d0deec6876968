"""The broker's end of the controller's requests, whether from the controller of this process or over the wire."""

from __future__ import annotations

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
from replication.turns import in_turns

BrokerResponse = LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse


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
            return await in_turns(self._replicas.apply_in_steps(request))
        if isinstance(request, StopReplicaRequest):
            if stale:
                return StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            return await in_turns(self._replicas.stop_in_steps(request))
        assert isinstance(request, UpdateMetadataRequest)
        if stale:
            return UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        return await in_turns(self._image.apply_in_steps(request))

    async def send(self, broker_id: int, request: BrokerRequest) -> BrokerResponse:
        """The controller's way to a broker of its own process."""
        return await self.handle(request)
