"""Elections, as pure functions of one partition's replicas, its state, and the replicas that can serve.

Each returns the state to write, or None where nothing changes. Every written change carries the next leader epoch, also
a change of the ISR alone: brokers obey only newer epochs. Rules: Kafka's Election and ReplicaStateMachine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gregor.replication.store.nodes import PartitionState

NO_LEADER = -1
FIRST_LEADER_EPOCH = 0


def elect_first(replicas: Sequence[int], electable: Collection[int], controller_epoch: int) -> PartitionState | None:
    """Return the first state of a new partition: all replicas that can serve are in sync, as nothing was written
    yet."""
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
    """Return the state after replicas have failed or returned.

    `electable` are the alive replicas whose brokers are not shutting down. While the leader is alive, the failed
    replicas leave the ISR. Otherwise the first electable replica in the ISR leads; if there is none, with `unclean` the
    first electable replica, alone in the ISR, whatever records it lacks; otherwise there is no leader. The last member
    never leaves the ISR: only it has all committed records.
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
    """Let the first replica lead again, if it is in sync."""
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
    """Remove `broker_id`, which is about to stop and no longer electable, from leadership and ISR while it still
    serves.

    None also when no other replica could lead; the broker then leads the partition until it stops.
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
    """Remove the `removed` brokers, which are no longer replicas, from leadership and ISR. A leader that stays
    continues with the next epoch, so that it is notified of its new replicas. None where no other replica could lead:
    the brokers cannot be removed yet.
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
