"""Who leads: elections as pure functions of one partition's replicas, its state, and which replicas can serve.

Each returns the state to write, or None where nothing is to change. Every written change carries the next leader
epoch, also one of the in-sync set alone: brokers obey only newer epochs. Rules: Kafka's Election and
ReplicaStateMachine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gregor.replication.store.nodes import PartitionState

NO_LEADER = -1
FIRST_LEADER_EPOCH = 0


def elect_first(replicas: Sequence[int], electable: Collection[int], controller_epoch: int) -> PartitionState | None:
    """The first state of a new partition: all replicas that can serve are in sync, as nothing was written yet."""
    isr = tuple(broker_id for broker_id in replicas if broker_id in electable)
    return PartitionState(isr[0], FIRST_LEADER_EPOCH, isr, controller_epoch) if isr else None


def elect_after_failures(
    replicas: Sequence[int],
    state: PartitionState,
    alive: Collection[int],
    electable: Collection[int],
    unclean: bool,
    controller_epoch: int,
) -> PartitionState | None:
    """What follows from some replicas being gone, or back.

    `electable` are the alive ones that are not shutting down. While the leader lives, the gone leave the ISR. Otherwise
    the first electable replica in the ISR leads; failing that, with `unclean`, the first electable one at all, alone,
    whatever it lacks; failing that, nobody leads. The last member never leaves the ISR: only it has all that is
    committed.
    """
    if state.leader in alive:
        isr = tuple(broker_id for broker_id in state.isr if broker_id in alive)
        return None if isr == state.isr else _next(state, state.leader, isr, controller_epoch)
    for leader in replicas:
        if leader in electable and leader in state.isr:
            isr = tuple(broker_id for broker_id in state.isr if broker_id in electable)
            return _next(state, leader, isr, controller_epoch)
    if unclean:
        for leader in replicas:
            if leader in electable:
                return _next(state, leader, (leader,), controller_epoch)._replace(recovering=True)
    isr = tuple(broker_id for broker_id in state.isr if broker_id in alive) or state.isr[-1:]
    if state.leader == NO_LEADER and isr == state.isr:
        return None
    return _next(state, NO_LEADER, isr, controller_epoch)


def elect_preferred(
    replicas: Sequence[int], state: PartitionState, electable: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Give the lead back to the first replica, if it is in sync."""
    preferred = replicas[0]
    if preferred == state.leader or preferred not in electable or preferred not in state.isr:
        return None
    return _next(state, preferred, state.isr, controller_epoch)


def elect_for_shutdown(
    replicas: Sequence[int],
    state: PartitionState,
    broker_id: int,
    electable: Collection[int],
    controller_epoch: int,
) -> PartitionState | None:
    """Take `broker_id`, which is about to stop and no longer electable, out of lead and ISR while it still serves.

    None also when no other replica could take over; the broker then keeps the partition until it stops.
    """
    if len(replicas) < 2 or (state.leader != broker_id and broker_id not in state.isr):
        return None
    leader = state.leader
    if leader == broker_id:
        successors = [other for other in replicas if other in electable and other in state.isr]
        if not successors:
            return None
        leader = successors[0]
    isr = tuple(other for other in state.isr if other != broker_id)
    return _next(state, leader, isr, controller_epoch) if isr else None


def elect_after_move(
    replicas: Sequence[int],
    removed: Collection[int],
    state: PartitionState,
    electable: Collection[int],
    controller_epoch: int,
) -> PartitionState | None:
    """The `removed` are no replicas any more: they leave lead and ISR. A leader that stays goes on leading, with the
    next epoch, so that it hears of its new replicas. None where nobody could take over: they cannot be removed yet.
    """
    isr = tuple(broker_id for broker_id in state.isr if broker_id not in removed)
    if not isr:
        return None
    leader = state.leader
    if leader in removed or (leader not in electable and leader != NO_LEADER):
        successors = [other for other in replicas if other in electable and other in isr]
        if not successors:
            return None
        leader = successors[0]
    return _next(state, leader, isr, controller_epoch)


def _next(state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int) -> PartitionState:
    return PartitionState(leader, state.leader_epoch + 1, isr, controller_epoch, state.recovering)
