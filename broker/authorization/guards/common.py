"""The common part of all guards: the narrowing of a request to its allowed parts, and the answers for the others.

A guard gets the parts of the broker, the request, its call, and `serve`, which passes a request to the plain handler.
It returns what a handler may return. Requests may be served again with the same object (Entry.repeats), so a guard
never changes one: it passes on a copy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gregor.broker.authorization.model import CLUSTER_NAME, Operation, ResourceType
from gregor.protocol.deferred import Deferred
from gregor.protocol.ids import ZERO_UUID

if TYPE_CHECKING:
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.context import Call
    from gregor.protocol.ids import Uuid
    from gregor.replication.partition.metadata_image import MetadataImage

Serve = Callable[[Any], Any]
"""Serves a request by the plain handler, and returns the handler's outcome."""
Guard = Callable[[Any, Any, "Call", Serve], Any]
RequestT = TypeVar("RequestT")
PartT = TypeVar("PartT")


class GuardContext(Protocol):
    """The parts of a broker with an authorizer that guards use."""

    @property
    def authorizer(self) -> Authorizer: ...
    @property
    def metadata(self) -> MetadataImage: ...


def allows_on_cluster(broker: GuardContext, call: Call, operation: Operation, *, logs_denial: bool = True) -> bool:
    return broker.authorizer.allows(call, operation, ResourceType.CLUSTER, CLUSTER_NAME, logs_denial=logs_denial)


def narrowed(request: RequestT, **fields: Any) -> RequestT:
    """Return a copy of a request with other values for these fields."""
    changed = copy(request)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def after(outcome: Any, change: Callable[[Any], None]) -> Any:
    """Apply `change` to the response of a handler's outcome, at once or when it is complete. A handler that sends no
    response returns None, which stays."""
    if isinstance(outcome, Deferred):
        return _after_deferred(outcome, change)
    if isinstance(outcome, Awaitable):
        return _after_awaitable(outcome, change)
    if outcome is not None:
        change(outcome)
    return outcome


def _after_deferred(source: Deferred[Any], change: Callable[[Any], None]) -> Deferred[Any]:
    changed: Deferred[Any] = Deferred()

    def complete(source: Deferred[Any]) -> None:
        if source.error is not None:
            changed.fail(source.error)
            return
        try:
            if source.value is not None:
                change(source.value)
        except Exception as error:  # a bug: the connection fails, not the party that completes the response
            changed.fail(error)
        else:
            changed.complete(source.value)

    # A cancellation of either one cancels the other.
    changed.then(lambda changed: source.cancel() if changed.cancelled else None)
    source.then(complete)
    return changed


async def _after_awaitable(outcome: Awaitable[Any], change: Callable[[Any], None]) -> Any:
    response = await outcome
    if response is not None:
        change(response)
    return response


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
    names = {name for part in parts if (name := name_of(part)) is not None}
    allowed = broker.authorizer.allowed(call, operation, resource, names)
    if len(allowed) == len(names):
        return parts, []
    kept: list[PartT] = []
    refused: list[PartT] = []
    for part in parts:
        name = name_of(part)
        (kept if name is None or name in allowed else refused).append(part)
    return kept, refused


def topic_name(broker: GuardContext, name: str, topic_id: Uuid) -> str | None:
    """Return the name of the topic that a part of a request means, None for an unknown topic id."""
    return name if topic_id == ZERO_UUID else broker.metadata.topic_name(topic_id)


def by_name(parts: Iterable[Any]) -> list[str]:
    return [part.name for part in parts]
