"""The common part of the APIs of delegation tokens: which clients may use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from gregor.protocol.errors import ErrorCode
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from gregor.broker.context import Call

ResultT = TypeVar("ResultT")


def refusal_of(call: Call) -> ErrorCode:
    """Return why a client may not use tokens, or NONE."""
    return ErrorCode.NONE if call.may_use_tokens else ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def in_time(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return the result of a change, which the client does not wait for without a limit. Raises KafkaError."""
    return await TimeLimit().within(work)
