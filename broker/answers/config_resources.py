"""Resources that have settings, as requests number them, and the checks that both ways to alter them share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.configs import BROKERS, CLIENT_METRICS, GROUPS, TOPICS

if TYPE_CHECKING:
    from gregor.protocol.turns import Turns


class ResourceType(IntEnum):
    """Numbers as on the wire (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


# Where their settings are kept; those of loggers are not.
ENTITY_TYPES: dict[int, str] = {
    ResourceType.TOPIC: TOPICS,
    ResourceType.BROKER: BROKERS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS,
    ResourceType.GROUP: GROUPS,
}


async def named_twice(resources: Sequence[Any], turns: Turns) -> set[tuple[int, str]]:
    """Type and name of the resources that a request names more than once."""
    named: set[tuple[int, str]] = set()
    twice: set[tuple[int, str]] = set()
    for resource in resources:
        await turns.next()
        key = resource.resource_type, resource.resource_name
        (twice if key in named else named).add(key)
    return twice


def check_resource(resource: Any, twice: set[tuple[int, str]], *, null_means_delete: int | None = None) -> None:
    """Raises KafkaError INVALID_REQUEST: the resource or a key of it is named twice, a value is missing.

    `null_means_delete`: the operation that needs no value.
    """
    if (resource.resource_type, resource.resource_name) in twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "each resource must be named once only")
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "each key must be named once only")
    missing = [
        config.name
        for config in resource.configs
        if config.value is None
        and (null_means_delete is None or getattr(config, "config_operation", None) != null_means_delete)
    ]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no value for {', '.join(missing)}")


def unknown_type(resource_type: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"unknown resource type {resource_type}")
