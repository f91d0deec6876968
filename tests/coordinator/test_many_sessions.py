"""Sessions that end at the same instant are removed in several turns of the loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from gregor.coordinator.group.states import GroupState
from gregor.coordinator.timers import MAX_AT_ONCE
from gregor.protocol.turns import TURN_S
from tests.coordinator.context import Context
from tests.coordinator.group.consumer.context import ConsumerContext

MEMBERS = 120
STEPS_PER_TURN = 10


class Turns:
    """Counts the turns for which work waits; each step lasts a tenth of a turn."""

    def __init__(self, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits = 0
        self.on_wait: Callable[[], None] = lambda: None
        gate, wait = context.loop_gate, context.loop_gate.wait
        now_s = itertools.count(0.0, TURN_S / STEPS_PER_TURN)

        async def counted() -> None:
            self.waits += 1
            self.on_wait()
            await wait()

        monkeypatch.setattr(gate, "clock", lambda: next(now_s))
        monkeypatch.setattr(gate, "wait", counted)


def check(context: Context, turns: Turns) -> None:
    # A step more in each, which is found to be behind the end of the turn.
    assert turns.waits >= (MEMBERS - MAX_AT_ONCE) // (STEPS_PER_TURN + 1)
    assert context.hard_state() == context.replayed_state()


def test_members_of_a_classic_group(monkeypatch: pytest.MonkeyPatch) -> None:
    with Context(initial_rebalance_delay_ms=10) as context:
        offer = [("range", b"")]
        ids = context.stable_group_of([offer] * MEMBERS)
        context.restart()
        turns = Turns(context, monkeypatch)
        context.sleep(30_000)
        assert context.state() is GroupState.EMPTY
        assert all(context.heartbeat(member_id, 1) for member_id in ids)
        check(context, turns)


def test_members_of_a_consumer_group(monkeypatch: pytest.MonkeyPatch) -> None:
    with ConsumerContext({"t": 4}) as context:
        for number in range(MEMBERS):
            context.consumer(f"m{number}")
        context.restart()
        epoch = context.found().epoch
        turns = Turns(context, monkeypatch)
        context.sleep(60_000)
        assert not context.found().members
        assert context.found().epoch == epoch + MEMBERS
        check(context, turns)


def test_member_whose_heartbeat_comes_before_its_turn_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with ConsumerContext({"t": 4}) as context:
        for number in range(MEMBERS):
            context.consumer(f"m{number}")
        context.restart()
        turns = Turns(context, monkeypatch)
        kept: list[str] = []

        def beat() -> None:
            group = context.found()
            member = next(iter(group.members.values()))
            if not kept:
                kept.append(member.member_id)
                context.shard.consumers.sessions.watch(group, member)

        turns.on_wait = beat
        context.sleep(50_000)
        assert list(context.found().members) == kept
        context.sleep(60_000)
        assert not context.found().members
