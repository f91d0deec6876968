"""gregor.broker.fetch.delayed: when and how often a waiting fetch reads again, and that it answers once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.fetch import watched_partitions
from gregor.broker.fetch.delayed import DelayedFetch
from gregor.broker.jobs import turns
from gregor.broker.jobs.turns import LoopGate, TurnQueue
from gregor.protocol.errors import ErrorCode
from gregor.replication.partition.purgatory import DelayedOperations
from tests.support.loop_clock import standing_clock


class FakeLog:
    def __init__(self) -> None:
        self.upper_offset = 0


class FakePartition:
    def __init__(self) -> None:
        self.delayed = DelayedOperations("orders", 0)
        self.log: Any = FakeLog()
        self.leadership = SimpleNamespace(log=self.log)
        self.leader_epoch = 0

    def move(self) -> None:
        self.log.upper_offset += 1
        self.notify()

    def notify(self) -> None:
        self.delayed.run(lambda offset: None)


class FakeRead:
    """A read that is satisfied when the test sets it so; it counts the references that it holds."""

    def __init__(self, *partitions: FakePartition) -> None:
        self._partitions = partitions
        self.satisfied = self.enough = False
        self.missing: list[str] = []
        self.fetches = 0
        self.fetch_s = 0.002
        self.fetch_error: Exception | None = None
        self.looks = 0
        self.held = 1  # as after the handler's first read

    def upper_offset(self, log: Any) -> Any:
        return log.upper_offset

    def partitions(self) -> list[FakePartition]:
        return list(self._partitions)

    def collect(self) -> None:
        assert not self.held
        self.missing = []
        self.looks += 1
        self.held = 1
        self.satisfied = self.enough

    async def fetch_missing(self) -> None:
        self.fetches += 1
        await asyncio.sleep(self.fetch_s)
        if self.fetch_error is not None:
            raise self.fetch_error

    def release(self) -> None:
        self.held = 0

    def response(self) -> Any:
        assert self.held
        return f"answer {self.looks}"


class Poll:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_wait_s: float = 3600,
        missing: tuple[str, ...] = (),
        count: int = 2,
        queue: TurnQueue | None = None,
    ) -> None:
        self.partitions = [FakePartition() for _ in range(count)]
        self.read = FakeRead(*self.partitions)
        self.read.missing = list(missing)
        self.answers: list[Any] = []
        port: Any = self.read
        queue = queue or TurnQueue(loop, LoopGate(), loop.create_task)
        self.delayed = DelayedFetch(loop, queue, port, max_wait_s)
        self.delayed.then(lambda delayed: None if delayed.cancelled else self.answers.append(delayed.value))

    @property
    def watching(self) -> list[bool]:
        return [partition.delayed.active for partition in self.partitions]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def turn(loop: asyncio.AbstractEventLoop, seconds: float = 0) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))
    loop.run_until_complete(asyncio.sleep(0))


def answered(loop: asyncio.AbstractEventLoop, poll: Poll) -> None:
    """Turns until it is."""
    end_s = loop.time() + 30
    while not poll.answers:
        assert loop.time() < end_s
        turn(loop, 0.001)


def test_it_holds_nothing_while_it_waits(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop)
    assert (poll.read.held, poll.watching) == (0, [True, True])
    poll.partitions[0].move()
    turn(loop)
    assert (poll.read.looks, poll.read.held, poll.answers) == (1, 0, [])
    poll.delayed.cancel()


def test_several_appends_of_one_turn_cost_one_look_and_none_at_once(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop)
    for _ in range(10):
        for partition in poll.partitions:
            partition.move()
    assert poll.read.looks == 0
    turn(loop)
    assert poll.read.looks == 1
    poll.delayed.cancel()


def test_an_append_of_which_it_may_read_nothing_costs_no_look(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop)
    poll.partitions[0].notify()
    turn(loop)
    assert poll.read.looks == 0
    poll.delayed.cancel()


def _replace_log(partition: FakePartition) -> None:
    partition.log = FakeLog()


def _go_offline(partition: FakePartition) -> None:
    partition.log = None


def _end_leadership(partition: FakePartition) -> None:
    partition.leadership.log = None


def _begin_epoch(partition: FakePartition) -> None:
    partition.leader_epoch += 1


@pytest.mark.parametrize("change", [_replace_log, _go_offline, _end_leadership, _begin_epoch])
def test_what_may_be_an_error_is_looked_at(
    loop: asyncio.AbstractEventLoop, change: Callable[[FakePartition], None]
) -> None:
    poll = Poll(loop)
    for partition in poll.partitions:
        change(partition)
        for _ in range(2):
            partition.notify()
            turn(loop)
    assert poll.read.looks == len(poll.partitions)
    poll.delayed.cancel()


def looks_at_three_moves(loop: asyncio.AbstractEventLoop, poll: Poll) -> list[int]:
    """The number of reads after each move."""
    looks = []
    for _ in range(3):
        poll.partitions[0].move()
        turn(loop)
        looks.append(poll.read.looks)
    return looks


def test_a_fetch_of_few_looks_at_each_move(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop)
    assert looks_at_three_moves(loop, poll) == [1, 2, 3]
    poll.delayed.cancel()


def test_a_fetch_of_many_rests_between_two_looks(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_partitions, "MIN_REST_S", 0.05)
    monkeypatch.setattr(watched_partitions, "MAX_REST_S", 0.05)
    poll = Poll(loop, count=1000)
    with standing_clock(loop):
        assert looks_at_three_moves(loop, poll) == [1, 1, 1]
    poll.read.enough = True
    answered(loop, poll)
    assert poll.answers == ["answer 2"]


def test_many_fetches_are_served_in_turns(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)  # time is up after each
    queue = TurnQueue(loop, LoopGate(), loop.create_task)
    polls = [Poll(loop, queue=queue) for _ in range(50)]
    polls[7].delayed.cancel()
    for poll in polls:
        poll.read.enough = True
        poll.partitions[0].move()

    async def answers_by_turn() -> list[int]:
        counts = []
        while queue.waiting:
            await asyncio.sleep(0)
            counts.append(sum(len(poll.answers) for poll in polls))
        await asyncio.sleep(0.001)
        return counts

    counts = loop.run_until_complete(answers_by_turn())
    assert 1 <= counts[0] <= 2, "the first one waits for no other"
    assert max(after - before for before, after in pairwise(counts)) == 1
    assert counts[-1] == 49


def test_the_time_is_over_while_it_rests(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_partitions, "REST_PER_PARTITION_S", 3600)
    monkeypatch.setattr(watched_partitions, "MAX_REST_S", 3600)
    with standing_clock(loop):
        poll = Poll(loop, max_wait_s=0.02)
        assert looks_at_three_moves(loop, poll) == [1, 1, 1]
    answered(loop, poll)
    assert poll.answers == ["answer 2"]


def test_it_answers_once_there_is_enough_and_only_once(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop, max_wait_s=0.01)
    poll.read.enough = True
    poll.partitions[1].move()
    turn(loop)
    assert poll.answers == ["answer 1"]
    assert poll.watching == [False, False]
    poll.partitions[0].move()
    turn(loop, 0.02)
    assert poll.answers == ["answer 1"]


def test_it_answers_with_what_there_is_when_the_time_is_over(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop, max_wait_s=0.005)
    turn(loop, 0.02)
    assert poll.answers == ["answer 1"]
    assert poll.watching == [False, False]


def test_the_time_and_a_move_in_the_same_turn(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop, max_wait_s=0)
    poll.read.enough = True
    poll.partitions[0].move()
    turn(loop, 0.005)
    assert poll.answers == ["answer 1"]


def test_cancelling_gives_everything_back(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop, max_wait_s=0.005)
    poll.partitions[0].move()
    poll.delayed.cancel()
    poll.delayed.cancel()
    turn(loop, 0.02)
    assert (poll.answers, poll.read.looks, poll.read.held) == ([], 0, 0)
    assert poll.watching == [False, False]


def test_what_is_missing_is_fetched_and_then_looked_at(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop, missing=("a page",))
    poll.read.enough = True
    poll.partitions[0].move()
    turn(loop)
    assert poll.read.fetches == 1
    answered(loop, poll)
    assert (poll.read.fetches, poll.read.looks, poll.answers) == (1, 1, ["answer 1"])
    assert poll.watching == [False, False]


def test_a_look_may_find_something_missing(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop)
    look = poll.read.collect

    def miss() -> None:
        look()
        poll.read.missing = ["a page"] if poll.read.looks < 3 else []

    poll.read.collect = miss  # type: ignore[method-assign]
    poll.read.enough = True
    poll.partitions[0].move()
    answered(loop, poll)
    assert (poll.read.fetches, poll.answers) == (2, ["answer 3"])


@pytest.mark.parametrize("enough", [False, True])
def test_the_time_is_over_while_something_is_fetched(loop: asyncio.AbstractEventLoop, enough: bool) -> None:
    poll = Poll(loop, 0, missing=("a page",))
    poll.read.enough = enough
    turn(loop)
    assert (poll.read.looks, poll.answers) == (0, [])
    answered(loop, poll)
    assert (poll.read.looks, poll.answers) == (1, ["answer 1"])


def test_cancelling_while_something_is_fetched(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop, missing=("a page",))
    poll.read.fetch_s = 3600
    turn(loop)
    poll.delayed.cancel()
    turn(loop, 0.01)
    assert (poll.answers, poll.read.looks, poll.read.held) == ([], 0, 0)


def test_a_fetch_that_fails_is_told_and_the_look_follows(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    poll = Poll(loop, missing=("a page",))
    poll.read.fetch_error = RuntimeError("a bug")
    poll.read.enough = True
    answered(loop, poll)
    assert poll.answers == ["answer 1"]
    assert "failed unexpectedly to read data into memory: RuntimeError('a bug');" in caplog.text
    assert "disk" not in caplog.records[-1].getMessage(), "its errors are reported elsewhere"
    assert "the client waits for it" in caplog.text
    assert "a page" in caplog.text, "the partition is not named"


@pytest.mark.parametrize("max_wait_s", [3600, 0.001])
def test_a_look_that_fails_is_answered_too(
    loop: asyncio.AbstractEventLoop, max_wait_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    poll = Poll(loop, max_wait_s)

    def fail() -> None:
        raise RuntimeError("a bug")

    poll.read.collect = fail  # type: ignore[method-assign]
    if max_wait_s > 1:
        poll.partitions[0].move()
    turn(loop, 0.005)
    (answer,) = poll.answers
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (poll.watching, poll.read.held) == ([False, False], 0)
    assert "a bug" in caplog.text


def test_a_partition_that_moves_while_the_answer_goes_out(loop: asyncio.AbstractEventLoop) -> None:
    poll = Poll(loop)

    poll.delayed.then(lambda _: poll.partitions[0].move())
    poll.read.enough = True
    poll.partitions[0].move()
    turn(loop)
    turn(loop)
    assert poll.answers == ["answer 1"]
