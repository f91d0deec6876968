"""DescribeCluster (key 60), versions 0 to 2: the live brokers and the controller.

- 1 endpoint type: this broker knows brokers only, not KRaft controllers; 2 fenced brokers, which exist with KRaft
  alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.authorized_operations import NOT_REQUESTED, cluster_operations
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, MetadataContext

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2


@handles(ApiKey.DESCRIBE_CLUSTER, 0, 2)
def describe_cluster(broker: MetadataContext, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type != ENDPOINT_BROKERS:
        known = request.endpoint_type == ENDPOINT_CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this address is a broker's; its controller has no endpoint of its own",
            endpoint_type=ENDPOINT_BROKERS,
            cluster_id=broker.cluster_id,
        )
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
            )
            for node_id in sorted(broker.metadata.brokers)
            if (endpoint := broker.endpoint_of(node_id, call)) is not None
        ],
        cluster_authorized_operations=(
            cluster_operations(broker.authorizer, call)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED
        ),
    )
