"""Elections and moves of partitions that clients request of the controller. Each is handled between two events, on a
context that does not change meanwhile.

A controller that was deposed without its knowledge must not answer from its old context that all is as requested: the
term is confirmed also where nothing is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from gregor.protocol.errors import KafkaError
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate
from gregor.replication.controller.elect_leaders import election_refusal, election_result
from gregor.replication.controller.events import PreferredElection, Reassigned, UncleanElection
from gregor.replication.controller.reassignment import before_all_have_left, is_moving, reassignment_refusal
from gregor.replication.store.metadata_store import StoreError

if TYPE_CHECKING:
    from gregor.replication.controller.context import Cluster
    from gregor.replication.controller.events import Step
    from gregor.replication.controller.writes import ControllerWrites
    from gregor.replication.store.nodes import ReplicaAssignment

ResultT = TypeVar("ResultT")

Elections = dict["TopicPartition", int | KafkaError]
Moves = dict["TopicPartition", KafkaError | None]


class Controller(Protocol):
    """The part of ControllerLoop that carries orders out."""

    @property
    def gate(self) -> Gate: ...

    async def in_turn(self, work: Callable[[Cluster, Step], Awaitable[ResultT]]) -> ResultT: ...


async def elect(
    controller: Controller, writes: ControllerWrites, keys: Collection[TopicPartition], unclean: bool
) -> Elections:
    """See ControllerLoop.elect."""

    async def work(cluster: Cluster, step: Step) -> Elections | None:
        results: Elections = dict.fromkeys(keys, -1)  # in this order
        wanted = set()
        turns = controller.gate.turns()
        for key in results:
            await turns.next()
            refusal = election_refusal(cluster, key, unclean)
            if refusal is None:
                wanted.add(key)
            else:
                results[key] = refusal
        await writes.confirm_term()
        if not wanted:
            return results
        after = await step((UncleanElection if unclean else PreferredElection)(frozenset(wanted)))
        if after is None:
            return None
        for key in wanted:
            await turns.next()
            results[key] = election_result(after, key, unclean)
        return results

    results = await _done(controller, work)
    return dict.fromkeys(keys, results) if isinstance(results, KafkaError) else results


async def reassign(
    controller: Controller,
    writes: ControllerWrites,
    targets: Mapping[TopicPartition, tuple[int, ...] | None],
    keep_factor: bool,
) -> Moves:
    """See ControllerLoop.reassign."""

    async def work(cluster: Cluster, step: Step) -> Moves | None:
        results: Moves = {}
        wanted = {}
        turns = controller.gate.turns()
        for key, target in targets.items():
            await turns.next()
            results[key] = reassignment_refusal(cluster, key, target, keep_factor=keep_factor)
            if results[key] is None:
                wanted[key] = target
        if wanted:
            # The latest request counts: one that an old tool left in the node is dropped.
            await writes.drop_reassignments(dict.fromkeys(wanted))
            await writes.confirm_term()
            if await step(Reassigned(wanted)) is None:
                return None
        return results

    results = await _done(controller, work)
    return dict.fromkeys(targets, results) if isinstance(results, KafkaError) else results


async def reassignments(
    controller: Controller, wanted: Collection[TopicPartition] | None
) -> dict[TopicPartition, ReplicaAssignment]:
    """See ControllerLoop.reassignments."""

    async def work(cluster: Cluster, _step: Step) -> dict[TopicPartition, ReplicaAssignment]:
        found = {
            key: before_all_have_left(partition.assignment, cluster.leaving.get(key, ()))
            for key, topic, partition in cluster.partitions()
            if not topic.deleting and (wanted is None or key in wanted)
        }
        return {key: assignment for key, assignment in found.items() if is_moving(assignment)}

    return await controller.in_turn(work)


async def _done(
    controller: Controller, work: Callable[[Cluster, Step], Awaitable[ResultT | None]]
) -> ResultT | KafkaError:
    """Return the result of `work`, or NOT_CONTROLLER on a broker that is not the controller. None as the result means
    that the context was outdated: `work` runs again on the next one."""
    try:
        while (result := await controller.in_turn(work)) is None:
            continue
    except KafkaError as error:
        if isinstance(error, StoreError):
            raise
        return error
    return result
