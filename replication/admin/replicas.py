"""Requests about the replicas of partitions: elections, and moves to other brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Protocol

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate
from gregor.replication.admin import controller_wait
from gregor.replication.admin.controller_wait import all_of, present_context, wait_until
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.store.nodes import ReplicaAssignment
from gregor.replication.store.time_limit import DEFAULT_TIMEOUT_MS, TimeLimit


class Controller(controller_wait.Controller, Protocol):
    """The part of controller.loop.ControllerLoop that elects leaders and moves partitions."""

    async def elect(
        self, keys: Collection[TopicPartition], unclean: bool
    ) -> dict[TopicPartition, int | KafkaError]: ...

    async def reassign(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaError | None]: ...

    async def reassignments(
        self, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]: ...


class ReplicaAdmin:
    """Methods return an error for each partition that failed. Timeouts: see Admin."""

    def __init__(self, controller: Controller, image: MetadataImage, gate: Gate) -> None:
        self._controller = controller
        self._image = image
        self._gate = gate

    async def elect_leaders(
        self, keys: Collection[TopicPartition], timeout_ms: int, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Let the preferred replica lead each partition, or with `unclean` any live one where there is no leader; None
        for each partition whose new leader is in this broker's metadata when this returns.

        Errors: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, REQUEST_TIMED_OUT. Raises NOT_CONTROLLER."""
        present_context(self._controller)
        limit = TimeLimit(timeout_ms)
        try:
            found = await limit.within(partial(self._controller.elect, keys, unclean))
        except KafkaError as error:
            return dict.fromkeys(keys, error)
        turns = self._gate.turns()
        results: dict[TopicPartition, KafkaError | None] = {}
        elected: dict[TopicPartition, int] = {}
        for key, result in found.items():
            await turns.next()
            results[key] = result if isinstance(result, KafkaError) else None
            if not isinstance(result, KafkaError):
                elected[key] = result

        def is_notified(key: TopicPartition) -> bool:
            state = self._image.partition(*key)
            return state is not None and state.leader == elected[key]

        if elected:
            await wait_until(self._controller, all_of(elected, is_notified), limit)
        for key in elected:
            await turns.next()
            if not is_notified(key):
                results[key] = KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, "the leader was elected, but is not known here yet"
                )
        return results

    async def reassignments(
        self, wanted: Collection[TopicPartition] | None = None, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return those of these partitions, or of all, that move. Raises KafkaError NOT_CONTROLLER,
        REQUEST_TIMED_OUT."""
        return await TimeLimit(timeout_ms).within(partial(self._controller.reassignments, wanted))

    async def reassign(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        keep_factor: bool = False,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move partitions to other brokers, or with None back to where they came from; return for each the refusal, or
        None if it moves or is there. `keep_factor`: only to as many brokers as it has replicas. Raises NOT_CONTROLLER,
        and REQUEST_TIMED_OUT: the moves may have begun, or may yet begin.

        Errors: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT,
        INVALID_REPLICATION_FACTOR (with `keep_factor`), NOT_CONTROLLER."""
        present_context(self._controller)
        work = partial(self._controller.reassign, targets, keep_factor=keep_factor)
        return await TimeLimit(timeout_ms).within(work)
