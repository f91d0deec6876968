"""gregor.replication.store.time_limit: how long a request waits for the metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.store.metadata_store import NodeExists, SessionExpired
from gregor.replication.store.time_limit import MAX_MS, MIN_MS, TimeLimit
from tests.coordinator.machinery import SkippingLoop


@pytest.fixture
def loop() -> Iterator[SkippingLoop]:
    loop = SkippingLoop()
    yield loop
    loop.close()


def takes(ms: int) -> Callable[[], Awaitable[str]]:
    async def work() -> str:
        await asyncio.sleep(ms / 1000)
        return "done"

    return work


async def code(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await work
    return raised.value.code


@pytest.mark.parametrize(
    ("timeout_ms", "given_up_after_ms"),
    [(0, MIN_MS), (-1, MIN_MS), (100, MIN_MS), (12_000, 12_000), (2**31 - 1, MAX_MS)],
)
def test_work_that_does_not_end_is_given_up_in_time(
    loop: SkippingLoop, timeout_ms: int, given_up_after_ms: int
) -> None:
    async def body() -> None:
        limit = TimeLimit(timeout_ms)
        assert await limit.within(takes(given_up_after_ms - 1)) == "done"
        limit = TimeLimit(timeout_ms)
        begin_s = loop.time()
        assert await code(limit.within(takes(given_up_after_ms + 1))) is ErrorCode.REQUEST_TIMED_OUT
        assert round((loop.time() - begin_s) * 1000) == given_up_after_ms

    loop.run_until_complete(body())


def test_work_is_cancelled_and_nothing_is_begun_after_it(loop: SkippingLoop) -> None:
    ends: list[str] = []

    async def hangs() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.append("cancelled")

    async def begins() -> None:
        ends.append("begun")

    async def body() -> None:
        limit = TimeLimit(6_000)
        assert await code(limit.within(hangs)) is ErrorCode.REQUEST_TIMED_OUT
        assert await code(limit.within(begins)) is ErrorCode.REQUEST_TIMED_OUT
        assert ends == ["cancelled"]

    loop.run_until_complete(body())


def test_many_writes_may_last_longer_than_the_limit_of_each(loop: SkippingLoop) -> None:
    async def body() -> None:
        limit = TimeLimit(10_000)
        assert limit.left_ms == 10_000
        assert [await limit.within(takes(4_000)) for _ in range(5)] == ["done"] * 5
        assert limit.left_ms == -10_000

    loop.run_until_complete(body())


def test_work_of_an_expired_session_is_started_again_and_other_errors_are_raised(loop: SkippingLoop) -> None:
    failures: list[Exception] = [SessionExpired("/a"), SessionExpired("/a"), NodeExists("/a")]

    async def fails() -> None:
        await asyncio.sleep(1)
        raise failures.pop(0)

    async def body() -> None:
        with pytest.raises(NodeExists):
            await TimeLimit(6_000).within(fails)
        failures.extend([SessionExpired("/a")] * 10)
        assert await code(TimeLimit(6_000).within(fails)) is ErrorCode.REQUEST_TIMED_OUT
        assert len(failures) == 5

    loop.run_until_complete(body())


def test_the_work_of_several_items_proceeds_together_in_their_order(loop: SkippingLoop) -> None:
    begun: list[int] = []

    async def work(item: int) -> int:
        begun.append(item)
        await asyncio.sleep(4 - item)
        if item == 2:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
        return item

    async def body() -> None:
        begin_s = loop.time()
        results = await TimeLimit(10_000).within_each([1, 2, 3], work)
        assert [result.code if isinstance(result, KafkaError) else result for result in results] == [
            1,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            3,
        ]
        assert begun == [1, 2, 3]
        assert loop.time() - begin_s == pytest.approx(3)

    loop.run_until_complete(body())


def test_another_error_is_raised_when_all_work_has_ended(loop: SkippingLoop) -> None:
    ended: list[str] = []

    async def work(item: str) -> None:
        if item != "slow":
            raise NodeExists(item)
        await asyncio.sleep(1)
        ended.append(item)

    async def body() -> None:
        with pytest.raises(NodeExists, match="^first$"):
            await TimeLimit(10_000).within_each(["slow", "first", "second"], work)
        assert ended == ["slow"]

    loop.run_until_complete(body())
