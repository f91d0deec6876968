"""Resources that have settings, by their numbers in requests, and the alteration of many by one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.configs import BROKERS, CLIENT_METRICS, GROUPS, TOPICS

if TYPE_CHECKING:
    from gregor.protocol.turns import Gate, Turns

AnswerT = TypeVar("AnswerT")


class ResourceType(IntEnum):
    """Numbers as on the wire (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


RESOURCE_TYPES: frozenset[int] = frozenset(ResourceType)
_ENTITY_TYPES: dict[int, str] = {
    ResourceType.TOPIC: TOPICS,
    ResourceType.BROKER: BROKERS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS,
    ResourceType.GROUP: GROUPS,
}
"""The node of the metadata store that holds the settings; those of loggers are not stored."""


async def alter_resources(
    gate: Gate,
    resources: Sequence[Any],
    answer_type: type[AnswerT],
    alter: Callable[[Any], Awaitable[None]],
    *,
    delete_operation: int | None = None,
) -> list[AnswerT]:
    """Alter one resource after the other, and return their answers. `alter` raises KafkaError.

    `delete_operation`: the operation on a setting that needs no value.
    """
    answers: list[Any] = []
    turns = gate.turns()
    twice = await _named_twice(resources, turns)
    for resource in resources:
        await turns.next()
        refusal: dict[str, Any] = {"error_message": None}
        try:
            await _check(resource, twice, delete_operation, turns)
            await alter(resource)
        except KafkaError as error:
            refusal = {"error_code": error.code, "error_message": error.message or None}
        resource_fields = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        answers.append(answer_type(**resource_fields, **refusal))
    return answers


def entity_type_of(resource_type: int) -> str:
    """Return the entity type under which the settings of a resource are stored. Raises KafkaError."""
    entity_type = _ENTITY_TYPES.get(resource_type)
    if entity_type is None:
        raise unknown_type(resource_type)
    return entity_type


def unknown_type(resource_type: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"unknown resource type {resource_type}")


async def _named_twice(resources: Sequence[Any], turns: Turns) -> set[tuple[int, str]]:
    """Return type and name of the resources that a request names more than once."""
    named: set[tuple[int, str]] = set()
    twice: set[tuple[int, str]] = set()
    for resource in resources:
        await turns.next()
        key = resource.resource_type, resource.resource_name
        (twice if key in named else named).add(key)
    return twice


async def _check(resource: Any, twice: set[tuple[int, str]], delete_operation: int | None, turns: Turns) -> None:
    """Raise KafkaError INVALID_REQUEST if the resource or a key of it is named twice, or a value is missing."""
    if (resource.resource_type, resource.resource_name) in twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "each resource must be named once only")
    names: set[str] = set()
    missing: list[str] = []
    for config in resource.configs:
        await turns.next()
        names.add(config.name)
        if config.value is None and (delete_operation is None or config.config_operation != delete_operation):
            missing.append(config.name)
    if len(names) < len(resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "each key must be named once only")
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no value for {', '.join(missing)}")
