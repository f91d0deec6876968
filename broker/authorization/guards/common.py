"""The common part of all guards: the narrowing of a request to its allowed parts, and the answers for the others.

A guard gets the parts of the broker, the request, its call, and `serve`, which passes a request to the plain handler.
It returns what a handler may return. Requests may be served again with the same object (Entry.repeats), so a guard
never changes one: it passes on a copy.

A request may name tens of thousands of resources, and each denial needs some 30 us, with its line in the audit log. So
most guards are steps (protocol.turns): a short request is one step, which is served at once; of a long one the other
steps proceed in turns of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gregor.broker.authorization.model import CLUSTER_NAME, Operation, ResourceType
from gregor.protocol.deferred import Deferred, outcome_of, transformed
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.context import Call
    from gregor.protocol.ids import Uuid
    from gregor.protocol.turns import Gate, Steps
    from gregor.replication.partition.metadata_image import MetadataImage

Serve = Callable[..., Any]
"""Serves a request by the plain handler, with its call or with another one, and returns the handler's outcome."""
Guard = Callable[[Any, Any, "Call", Serve], Any]
StepGuard = Callable[[Any, Any, "Call", Serve], "Steps[Any]"]
"""A guard in steps, whose result is the outcome of the handler."""
PartT = TypeVar("PartT")
ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

NAMES_AT_ONCE = 64
"""Names of a request that are checked in one step: it costs less than turns do, and 2 ms if all are denied."""
NAMES_PER_STEP = 32
"""Names of a longer request that are checked in one step: 1 ms if all are denied."""


class GuardContext(Protocol):
    """The parts of a broker with an authorizer that guards use."""

    @property
    def authorizer(self) -> Authorizer: ...
    @property
    def metadata(self) -> MetadataImage: ...
    @property
    def gate(self) -> Gate: ...


# ---- steps -------------------------------------------------------------------------------------------------------


def in_steps(guard: StepGuard) -> Guard:
    """Return the guard that runs these steps: one at once, and any others in turns of the event loop."""

    @wraps(guard)
    def run(broker: GuardContext, request: Any, call: Call, serve: Serve) -> Any:
        return begun(broker.gate, guard(broker, request, call, serve))

    return run


def begun(gate: Gate, steps: Steps[Any]) -> Any:
    """Run the first step. Return the outcome if it was the only one, else a coroutine of the response."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    return _rest(gate, steps)


async def _rest(gate: Gate, steps: Steps[Any]) -> Any:
    return await _response(await gate.run(steps))


async def _response(outcome: Any) -> Any:
    """Wait for the response of a handler."""
    if isinstance(outcome, Deferred):
        return await outcome_of(outcome, asyncio.get_running_loop().create_future())
    return await outcome if isinstance(outcome, Awaitable) else outcome


def each(items: Iterable[ItemT], make: Callable[[ItemT], AnswerT]) -> Steps[list[AnswerT]]:
    """Return `make(item)` for each item."""
    made: list[AnswerT] = []
    for item in items:
        made.append(make(item))
        if not len(made) % ITEMS_PER_STEP:
            yield None
    return made


def each_topic(
    topics: Iterable[Any],
    parts_of: Callable[[Any], Iterable[Any]],
    make_part: Callable[[Any], Any],
    make: Callable[[Any, list[Any]], AnswerT],
) -> Steps[list[AnswerT]]:
    """Return `make(topic, parts)` for each topic, with `make_part(part)` for each of its parts."""
    made: list[AnswerT] = []
    for topic in topics:
        parts = yield from each(parts_of(topic), make_part)
        made.append(make(topic, parts))
        if not len(made) % ITEMS_PER_STEP:
            yield None
    return made


# ---- checks and answers ------------------------------------------------------------------------------------------


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


def after_in_steps(broker: GuardContext, outcome: Any, change: Callable[[Any], Steps[Any]]) -> Any:
    """As `after`, for a change in steps."""
    if isinstance(outcome, (Deferred, Awaitable)):
        return _after_response(broker.gate, outcome, change)
    return None if outcome is None else begun(broker.gate, change(outcome))


async def _after_response(gate: Gate, outcome: Any, change: Callable[[Any], Steps[Any]]) -> Any:
    response = await _response(outcome)
    return None if response is None else await gate.run(change(response))


def allowed_names(
    broker: GuardContext,
    call: Call,
    operation: Operation,
    resource: ResourceType,
    names: Collection[str],
    *,
    logs_denial: bool = True,
) -> Steps[set[str]]:
    """Return those of the names on which the operation is allowed."""
    authorizer = broker.authorizer
    if len(names) <= NAMES_AT_ONCE:
        return authorizer.allowed(call, operation, resource, names, logs_denial=logs_denial)
    allowed: set[str] = set()
    ordered = list(names)
    for begin in range(0, len(ordered), NAMES_PER_STEP):
        step = ordered[begin : begin + NAMES_PER_STEP]
        allowed |= authorizer.allowed(call, operation, resource, step, logs_denial=logs_denial)
        yield None
    return allowed


def split(
    broker: GuardContext,
    call: Call,
    operation: Operation,
    resource: ResourceType,
    parts: Sequence[PartT],
    name_of: Callable[[PartT], str | None],
) -> Steps[tuple[Sequence[PartT], list[PartT]]]:
    """Return the parts of a request that name resources on which the operation is allowed, and the other ones. Each
    name is checked once. A part without a name, as its topic id is unknown, is for the plain handler to refuse."""
    if len(parts) <= NAMES_AT_ONCE:
        return split_at_once(broker, call, operation, resource, parts, name_of)
    kept: list[PartT] = []
    refused: list[PartT] = []
    checked: set[str] = set()
    allowed: set[str] = set()
    for begin in range(0, len(parts), NAMES_PER_STEP):
        step = parts[begin : begin + NAMES_PER_STEP]
        names = list(map(name_of, step))
        distinct = {name for name in names if name is not None and name not in checked}
        checked |= distinct
        allowed |= broker.authorizer.allowed(call, operation, resource, distinct)
        _divide(step, names, allowed, kept, refused)
        yield None
    return (kept, refused) if refused else (parts, [])


def split_at_once(
    broker: GuardContext,
    call: Call,
    operation: Operation,
    resource: ResourceType,
    parts: Sequence[PartT],
    name_of: Callable[[PartT], str | None],
) -> tuple[Sequence[PartT], list[PartT]]:
    """As `split`, in one step."""
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
    _divide(parts, names, allowed, kept, refused)
    return kept, refused


def _divide(
    parts: Sequence[PartT],
    names: Sequence[str | None],
    allowed: Collection[str],
    kept: list[PartT],
    refused: list[PartT],
) -> None:
    """Append each part to those that are kept, where it has no name or an allowed one, or to those that are refused."""
    for name, part in zip(names, parts, strict=True):
        (kept if name is None or name in allowed else refused).append(part)


def topic_name(broker: GuardContext, name: str, topic_id: Uuid) -> str | None:
    """Return the name of the topic that a part of a request means, None for an unknown topic id."""
    return name if topic_id == ZERO_UUID else broker.metadata.topic_name(topic_id)


NAME: Callable[[Any], str] = attrgetter("name")
"""The name of a part that is named by it."""


def by_name(parts: Iterable[Any]) -> list[str]:
    return [part.name for part in parts]
