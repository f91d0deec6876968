"""The invariants of a group whose members do random things in random order."""

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.coordinator.group.group import Membership
from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import JoinGroupResponse, SyncGroupResponse
from tests.coordinator.context import Context
from tests.coordinator.machinery import Call

SESSION_MS = 6_000
REBALANCE_MS = 9_000
INSTANCES = [None, None, None, "a", "b"]


class Process:
    """A consumer process. It trusts the last response, as clients do; it also does things that no client would do."""

    def __init__(self, context: Context, number: int) -> None:
        self.context = context
        self.number = number
        self.instance = INSTANCES[number]
        self.metadata = bytes([number])
        self.member_id = ""
        self.generation = -1
        self.synced_generation = -1
        self.leads = False
        self.members: list[str] = []
        self.joining: Call[JoinGroupResponse] | None = None
        self.syncing: Call[SyncGroupResponse] | None = None

    def listen(self) -> None:
        if self.joining is not None and self.joining.done:
            response = self.joining.response
            self.joining = None
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            elif response.error_code == 0:
                self.member_id, self.generation = response.member_id, response.generation_id
                self.leads = response.leader == self.member_id and not response.skip_assignment
                self.members = [member.member_id for member in response.members]
            elif response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
        if self.syncing is not None and self.syncing.done:
            told = self.syncing.response
            self.syncing = None
            if not told.error_code and told.assignment:
                # No member receives an assignment of another generation.
                assert told.assignment.startswith(b"%d:" % self.synced_generation)

    def join(self) -> None:
        if self.joining is None:
            self.joining = self.context.join(
                self.member_id,
                instance=self.instance,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
                protocols=[("range", self.metadata)],
            )

    def resubscribe(self) -> None:
        self.metadata += b"+"
        self.join()

    def sync(self) -> None:
        if self.syncing is None:
            given = {who: f"{self.generation}:{who}".encode() for who in self.members} if self.leads else {}
            self.synced_generation = self.generation
            self.syncing = self.context.sync(self.member_id, self.generation, given, instance=self.instance)

    def heartbeat(self) -> None:
        error = self.context.heartbeat(self.member_id, self.generation, instance=self.instance)
        if error is ErrorCode.UNKNOWN_MEMBER_ID or error is ErrorCode.FENCED_INSTANCE_ID:
            self.member_id = ""

    def leave(self) -> None:
        self.context.leave((self.member_id, self.instance))

    def commit(self) -> None:
        self.context.commit_offset(member_id=self.member_id, generation=self.generation, instance=self.instance)

    def commit_in_transaction(self) -> None:
        self.context.commit_in_transaction(
            producer_id=self.number,
            member_id=self.member_id,
            generation=self.generation,
            instance=self.instance,
        )

    def end_committed(self) -> None:
        self.context.end_transaction(producer_id=self.number, commit=True)

    def end_aborted(self) -> None:
        self.context.end_transaction(producer_id=self.number, commit=False)

    def restart(self) -> None:
        self.member_id, self.generation, self.leads, self.members = "", -1, False, []
        self.joining = self.syncing = None


VERBS = ["join", "join", "sync", "sync", "heartbeat", "heartbeat", "resubscribe", "leave", "commit", "restart"]
VERBS += ["commit_in_transaction", "end_committed", "end_aborted"]
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(VERBS), st.integers(0, len(INSTANCES) - 1)),
        st.tuples(st.just("sleep"), st.sampled_from([100, 1_000, 3_000, 7_000])),
        st.tuples(st.sampled_from(["fail", "hold", "commit all", "move"]), st.just(0)),
    ),
    max_size=60,
)


def check_membership(membership: Membership) -> None:
    """The invariants that its class promises."""
    members = membership.members
    assert membership.parked_joins == sum(member.parked_join is not None for member in members.values())
    assert membership.static_members == {
        member.group_instance_id: member_id for member_id, member in members.items() if member.group_instance_id
    }
    assert (membership.leader in members) if members else membership.leader is None
    assert not membership.pending & members.keys()
    assert membership.unsynced <= members.keys()
    support: dict[str, int] = {}
    for member in members.values():
        for name in member.protocols:
            support[name] = support.get(name, 0) + 1
    assert membership.support == support
    if membership.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        assert membership.protocol in support
        assert not any(member.parked_join for member in members.values())
    if membership.state is not GroupState.COMPLETING_REBALANCE:
        assert not any(member.parked_sync for member in members.values())


def expected_timers(membership: Membership | None) -> set[Hashable]:
    """Every timer has its reason, and is gone when that is gone."""
    if membership is None:
        return {("expiry",)}
    keys: set[Hashable] = {("expiry",)}
    keys |= {("session", "g", member_id) for member_id in (*membership.members, *membership.pending)}
    # A member that waits is spared when its session ends, and has no timer until its wait ends.
    keys -= {member.timer_key for member in membership.members.values() if member.excused}
    if membership.state is GroupState.PREPARING_REBALANCE:
        keys.add(("join", "g"))
    elif membership.unsynced:
        keys.add(("sync", "g"))
    return keys


def check(context: Context, processes: list[Process]) -> None:
    for process in processes:
        process.listen()
    membership = context.shard.soft.memberships.get("g")
    excused = {member.timer_key for member in membership.members.values() if member.excused} if membership else set()
    assert context.timers() - excused == expected_timers(membership)
    if membership is not None:
        check_membership(membership)
        if membership.state is GroupState.STABLE:
            # The group in memory equals the group in the log.
            written = context.shard.groups["g"].metadata
            assert written is not None
            assert (written.generation, written.leader) == (membership.generation, membership.leader)
            assert {member.member_id: member.assignment for member in written.members} == {
                member_id: member.assignment for member_id, member in membership.members.items()
            }
            for member_id, member in membership.members.items():
                generation, _, owner = member.assignment.decode().partition(":")
                # An assignment is of this generation, and of this member or the id that a static one had before.
                assert generation in ("", str(membership.generation))
                assert owner in ("", member_id) or member.is_static
    assert context.hard_state() == context.replayed_state()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(steps)
def test_whatever_members_do_the_group_stays_in_order(plan: list[tuple[str, int]]) -> None:
    with Context(initial_rebalance_delay_ms=500) as context:
        processes = [Process(context, number) for number in range(len(INSTANCES))]
        generation = 0
        for verb, number in plan:
            match verb:
                case "sleep":
                    context.sleep(number)
                case "fail":
                    context.fail()
                case "hold":
                    context.hold()
                case "commit all":
                    context.commit()
                case "move":
                    context.commit()
                    context.log.failures.clear()
                    context.restart()
                case _:
                    getattr(processes[number], verb)()
            check(context, processes)
            # After a change that could not be written, or a move, the group returns to its state in the log; otherwise
            # generations only rise.
            membership = context.shard.soft.memberships.get("g")
            group = context.shard.groups.get("g")
            written = group.metadata.generation if group is not None and group.metadata is not None else 0
            now = written if membership is None else membership.generation
            assert now >= generation or now == written
            generation = now
        # Without further requests, everything that waits gets its response, and the group becomes empty.
        context.log.failures.clear()
        context.commit()
        for _ in range(40):
            context.sleep(REBALANCE_MS)
            check(context, processes)
        assert all(process.joining is None and process.syncing is None for process in processes)
        assert context.state() in (GroupState.EMPTY, GroupState.DEAD)
        assert context.shard.soft.memberships == {}


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(steps, st.integers(1, len(INSTANCES)))
def test_after_any_disorder_members_that_behave_get_a_stable_group(plan: list[tuple[str, int]], size: int) -> None:
    with Context(initial_rebalance_delay_ms=500) as context:
        processes = [Process(context, number) for number in range(len(INSTANCES))]
        for verb, number in plan:
            if verb == "sleep":
                context.sleep(number)
            elif hasattr(Process, verb):
                getattr(processes[number], verb)()
            for process in processes:
                process.listen()
        good = processes[:size]
        for _ in range(60):
            for process in good:
                process.listen()
                if process.joining is None and process.syncing is None:
                    behave(context, process)
            context.sleep(1_000)
        membership = context.shard.soft.memberships["g"]
        assert membership.state is GroupState.STABLE
        assert membership.members.keys() == {process.member_id for process in good}
        assert {process.generation for process in good} == {membership.generation}
        assert all(member.assignment for member in membership.members.values())


def behave(context: Context, process: Process) -> None:
    """Do what a consumer does once a second."""
    if process.member_id == "" or process.generation < 0:
        process.join()
        return
    error = context.heartbeat(process.member_id, process.generation, instance=process.instance)
    match error:
        case ErrorCode.NONE:
            process.sync()
        case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
            process.restart()
            process.join()
        case _:
            process.join()
