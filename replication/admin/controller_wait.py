"""Waiting until the controller of this process, and then the other brokers, have acted on what a request wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.controller.context import Cluster
from gregor.replication.store.time_limit import TimeLimit

NOTIFIED_WITHIN_MS = 1000
"""The longest time for which a response waits until the other brokers have the new metadata."""

ItemT = TypeVar("ItemT")


class Controller(Protocol):
    """The part of controller.loop.ControllerLoop that requests wait for."""

    cluster: Cluster | None

    def check_conditions(self) -> None: ...

    async def wait_until(self, predicate: Callable[[], bool], timeout_ms: int | None = None) -> bool: ...

    async def until_notified(self, timeout_s: float) -> None: ...


def present_context(controller: Controller) -> Cluster:
    """Return the controller context. Raises KafkaError NOT_CONTROLLER."""
    if controller.cluster is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    return controller.cluster


async def wait_until(controller: Controller, predicate: Callable[[], bool], limit: TimeLimit) -> bool:
    """Wait until the predicate holds here, and until the other brokers have the new metadata if they respond soon: the
    client may send its next request to any of them. (Beyond Apache Kafka, where the next request may not find what
    this one made.)"""
    left_ms = limit.left_ms
    holds = left_ms > 0 and await controller.wait_until(predicate, left_ms)
    if holds:
        await controller.until_notified(min(limit.left_ms, NOTIFIED_WITHIN_MS) / 1000)
    return holds


def all_of(items: Iterable[ItemT], holds: Callable[[ItemT], bool]) -> Callable[[], bool]:
    """Return a predicate: whether `holds` was true once of each item. It is checked often, so an item of which it was
    true is not checked again."""
    left = deque(items)

    def all_hold() -> bool:
        while left and holds(left[0]):
            left.popleft()
        return not left

    return all_hold
