"""The guards of settings (keys 32, 33, 44, 74).

Those of topics and groups belong to the topic or the group; those of brokers, their loggers and client metrics to the
cluster. Kafka: ConfigHelper, ControllerApis.authorizeAlterResource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import (
    NAMES_PER_STEP,
    GuardContext,
    Serve,
    after,
    allows_on_cluster,
    extended,
    in_steps,
)
from gregor.broker.authorization.model import CLUSTER_NAME, Operation, ResourceType
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
)
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.protocol.turns import Steps

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's ConfigResource.Type."""
_GUARDED = {
    TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    BROKER: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    BROKER_LOGGER: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    CLIENT_METRICS: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
}
_TEXTS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


@in_steps
def describe_configs(broker: GuardContext, request: DescribeConfigsRequest, call: Call, serve: Serve) -> Steps[Any]:
    return _served(
        broker, request, call, serve, Operation.DESCRIBE_CONFIGS, DescribeConfigsResponse.DescribeConfigsResult
    )


@in_steps
def alter_configs(broker: GuardContext, request: AlterConfigsRequest, call: Call, serve: Serve) -> Steps[Any]:
    make = AlterConfigsResponse.AlterConfigsResourceResponse
    return _served(broker, request, call, serve, Operation.ALTER_CONFIGS, make)


@in_steps
def incremental_alter_configs(
    broker: GuardContext, request: IncrementalAlterConfigsRequest, call: Call, serve: Serve
) -> Steps[Any]:
    make = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return _served(broker, request, call, serve, Operation.ALTER_CONFIGS, make)


def _served(
    broker: GuardContext, request: Any, call: Call, serve: Serve, operation: Operation, make: Any
) -> Steps[Any]:
    """Serve the resources that are allowed. Those of an unknown type are for the plain handler to refuse."""
    allowed = []
    answers = []
    named: set[tuple[int, str]] = set()
    twice: set[tuple[int, str]] = set()
    for position, resource in enumerate(request.resources, 1):
        if not position % ITEMS_PER_STEP:
            yield None
        key = resource.resource_type, resource.resource_name
        (twice if key in named else named).add(key)
    for position, resource in enumerate(request.resources, 1):
        if not position % NAMES_PER_STEP:
            yield None
        error = _refusal(broker, call, operation, resource)
        # A resource that is to be altered and is named twice is invalid, whatever the rights are.
        is_invalid = operation is Operation.ALTER_CONFIGS and (resource.resource_type, resource.resource_name) in twice
        if not error or is_invalid:
            allowed.append(resource)
        else:
            answers.append(
                make(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    error_code=error,
                    error_message=_TEXTS[error],
                )
            )
    if not answers:
        return serve(request)

    answered = "results" if operation is Operation.DESCRIBE_CONFIGS else "responses"
    return after(serve(request.replaced(resources=allowed)), extended(**{answered: answers}))


def _refusal(broker: GuardContext, call: Call, operation: Operation, resource: Any) -> ErrorCode:
    found = _GUARDED.get(resource.resource_type)
    if found is None:
        return ErrorCode.NONE
    kind, error = found
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
    return ErrorCode.NONE if broker.authorizer.allows(call, operation, kind, name) else error


def list_config_resources(broker: GuardContext, request: Any, call: Call, serve: Serve) -> Any:
    """DESCRIBE_CONFIGS on the cluster."""
    if allows_on_cluster(broker, call, Operation.DESCRIBE_CONFIGS):
        return serve(request)
    return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, config_resources=[])
