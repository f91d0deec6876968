"""The common part of all guards: the narrowing of a request to its allowed parts, and the answers for the others.

A guard gets the parts of the broker, the request, its call, and `serve`, which passes a request to the plain handler.
It returns what a handler may return. Requests may be served again with the same object (Entry.repeats), so a guard
never changes one: it passes on a copy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gregor.broker.authorization.model import CLUSTER_NAME, Operation, ResourceType
from gregor.protocol.deferred import Deferred, transformed
from gregor.protocol.ids import ZERO_UUID

if TYPE_CHECKING:
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.context import Call
    from gregor.protocol.ids import Uuid
    from gregor.replication.partition.metadata_image import MetadataImage

Serve = Callable[[Any], Any]
"""Serves a request by the plain handler, and returns the handler's outcome."""
Guard = Callable[[Any, Any, "Call", Serve], Any]
PartT = TypeVar("PartT")


class GuardContext(Protocol):
    """The parts of a broker with an authorizer that guards use."""

    @property
    def authorizer(self) -> Authorizer: ...
    @property
    def metadata(self) -> MetadataImage: ...


def allows_on_cluster(broker: GuardContext, call: Call, operation: Operation, *, logs_denial: bool = True) -> bool:
    return broker.authorizer.allows(call, operation, ResourceType.CLUSTER, CLUSTER_NAME, logs_denial=logs_denial)


def extended(**answers: Sequence[Any]) -> Callable[[Any], Any]:
    """Return the change that adds answers to the named lists of a response."""

    def extend(response: Any) -> Any:
        return response.replaced(**{name: [*getattr(response, name), *more] for name, more in answers.items()})

    return extend


def after(outcome: Any, change: Callable[[Any], Any]) -> Any:
    """Return a handler's outcome with `change(response)` in place of its response, at once or when it is complete. A
    handler that sends no response returns None, which stays."""
    if isinstance(outcome, Deferred):
        return transformed(outcome, lambda response: None if response is None else change(response))
    if isinstance(outcome, Awaitable):
        return _after_awaitable(outcome, change)
    return None if outcome is None else change(outcome)


async def _after_awaitable(outcome: Awaitable[Any], change: Callable[[Any], Any]) -> Any:
    response = await outcome
    return None if response is None else change(response)


def split(
    broker: GuardContext,
    call: Call,
    operation: Operation,
    resource: ResourceType,
    parts: Sequence[PartT],
    name_of: Callable[[PartT], str | None],
) -> tuple[Sequence[PartT], list[PartT]]:
    """Return the parts of a request that name resources on which the operation is allowed, and the other ones. Each
    name is checked once. A part without a name, as its topic id is unknown, is for the plain handler to refuse."""
    if len(parts) == 1:
        only = name_of(parts[0])
        if only is None or broker.authorizer.allows(call, operation, resource, only):
            return parts, []
        return [], list(parts)
    names = list(map(name_of, parts))
    distinct = {name for name in names if name is not None}
    allowed = broker.authorizer.allowed(call, operation, resource, distinct)
    if len(allowed) == len(distinct):
        return parts, []
    kept: list[PartT] = []
    refused: list[PartT] = []
    for name, part in zip(names, parts, strict=True):
        (kept if name is None or name in allowed else refused).append(part)
    return kept, refused


def topic_name(broker: GuardContext, name: str, topic_id: Uuid) -> str | None:
    """Return the name of the topic that a part of a request means, None for an unknown topic id."""
    return name if topic_id == ZERO_UUID else broker.metadata.topic_name(topic_id)


NAME: Callable[[Any], str] = attrgetter("name")
"""The name of a part that is named by it."""


def by_name(parts: Iterable[Any]) -> list[str]:
    return [part.name for part in parts]
