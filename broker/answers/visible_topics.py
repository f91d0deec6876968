"""The topics that the client of a request may describe: others are hidden from it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gregor.broker.authorization.model import Operation, ResourceType

if TYPE_CHECKING:
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.context import Call
    from gregor.protocol.turns import Turns

NAMES_PER_STEP = 100
"""Names that are checked in one step, in some 50 us if the decisions are known."""


def describable_topics(
    authorizer: Authorizer, call: Call, names: Collection[str], *, logs_denial: bool = False
) -> set[str]:
    """Return the names of topics that the client may describe. A hidden name is not logged."""
    return authorizer.allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, names, logs_denial=logs_denial)


async def describable_in_turns(
    authorizer: Authorizer, call: Call, names: Collection[str], turns: Turns, *, logs_denial: bool = False
) -> set[str]:
    """Return the same for many names, in turns of the event loop."""
    found: set[str] = set()
    ordered = list(names)
    for begin in range(0, len(ordered), NAMES_PER_STEP):
        await turns.next()
        step = ordered[begin : begin + NAMES_PER_STEP]
        found |= describable_topics(authorizer, call, step, logs_denial=logs_denial)
    return found
