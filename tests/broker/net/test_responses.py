"""Responses of handlers that are coroutines: those that need no wait are complete at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from gregor.broker.net.responses import run_to_first_wait


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


async def sum_of(*futures: asyncio.Future[int]) -> int:
    total = 0
    for future in futures:
        total += await future
    return total


def begun(*futures: asyncio.Future[int]) -> Coroutine[Any, None, int]:
    rest = run_to_first_wait(sum_of(*futures))
    assert asyncio.iscoroutine(rest)
    return rest


def test_a_coroutine_without_a_wait_has_its_result_at_once() -> None:
    assert run_to_first_wait(sum_of()) == 0


def test_an_error_before_the_first_wait_is_raised_at_once() -> None:
    async def fails() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        run_to_first_wait(fails())


@on_a_loop
async def test_the_rest_proceeds_in_a_task() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    task = loop.create_task(begun(first, second))
    await asyncio.sleep(0)
    first.set_result(3)
    second.set_result(4)
    assert await task == 7


@on_a_loop
async def test_a_future_that_is_done_before_the_task_begins() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    rest = begun(first)
    first.set_result(5)
    assert await rest == 5


@on_a_loop
async def test_an_error_of_the_awaited_reaches_the_coroutine() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    rest = begun(first)
    first.set_exception(ValueError("late"))
    with pytest.raises(ValueError, match="late"):
        await rest


@on_a_loop
async def test_a_bare_yield_is_a_turn_of_the_loop() -> None:
    async def in_turns() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "done"

    rest = run_to_first_wait(in_turns())
    assert asyncio.iscoroutine(rest)
    assert await rest == "done"


@pytest.mark.parametrize("has_begun", [True, False])
@on_a_loop
async def test_a_cancellation_ends_the_coroutine(has_begun: bool) -> None:
    cleaned = []

    async def waits() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(True)

    rest: Any = run_to_first_wait(waits())
    task = asyncio.get_running_loop().create_task(rest)
    del rest
    if has_begun:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


@on_a_loop
async def test_a_coroutine_may_continue_after_a_cancellation() -> None:
    last: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def survives() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return await last
        return "not cancelled"

    rest: Any = run_to_first_wait(survives())
    task = asyncio.get_running_loop().create_task(rest)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    last.set_result("cancelled, and done")
    assert await task == "cancelled, and done"
