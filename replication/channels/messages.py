"""The requests between the controller and the brokers, with their responses."""

from __future__ import annotations

from gregor.protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

BrokerRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
"""From the controller to a broker."""
BrokerResponse = LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse
ControllerRequest = AlterPartitionRequest | ControlledShutdownRequest | AllocateProducerIdsRequest
"""From a broker to the controller."""
ControllerResponse = AlterPartitionResponse | ControlledShutdownResponse | AllocateProducerIdsResponse
