"""A result that comes later: one outcome, callbacks in order, cancellation, waiting in a coroutine."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest

from gregor.protocol.deferred import Deferred, DeferredCancelled, completed, outcome_of, transformed


def test_a_callback_gets_the_result_whether_it_was_added_before_or_after() -> None:
    early, late = Deferred[str](), Deferred[str]()
    results: list[object] = []
    early.then(lambda deferred: results.append(deferred.value))
    assert early.complete("one")
    late.complete("two")
    late.then(lambda deferred: results.append(deferred.value))
    assert results == ["one", "two"]


def test_the_first_outcome_counts() -> None:
    completed, failed, cancelled = Deferred[str](), Deferred[str](), Deferred[str]()
    error = ValueError("no")
    assert completed.complete("yes")
    assert not (completed.fail(error) or completed.cancel() or completed.complete("again"))
    assert failed.fail(error)
    assert not (failed.complete("late") or failed.cancel())
    assert cancelled.cancel()
    assert not (cancelled.complete("late") or cancelled.fail(error))
    assert (completed.value, completed.error, completed.cancelled) == ("yes", None, False)
    assert (failed.value, failed.error, failed.cancelled) == (None, error, False)
    assert (cancelled.value, cancelled.cancelled) == (None, True)


def test_the_result_is_returned_or_raised() -> None:
    completed, failed, cancelled = Deferred[str](), Deferred[str](), Deferred[str]()
    completed.complete("yes")
    failed.fail(ValueError("no"))
    cancelled.cancel()
    assert completed.result() == "yes"
    with pytest.raises(ValueError, match="no"):
        failed.result()
    with pytest.raises(DeferredCancelled):
        cancelled.result()


def test_callbacks_run_once_and_in_their_order_however_it_ends() -> None:
    for end in (lambda deferred: deferred.complete(1), Deferred.cancel, lambda deferred: deferred.fail(OSError())):
        deferred: Deferred[int] = Deferred()
        calls: list[tuple[str, bool]] = []
        deferred.then(lambda it, calls=calls: calls.append(("first", it.done)))  # type: ignore[misc]
        deferred.then(lambda it, calls=calls: calls.append(("second", it.done)))  # type: ignore[misc]
        end(deferred)
        end(deferred)
        assert calls == [("first", True), ("second", True)]
        deferred.then(lambda it, calls=calls: calls.append(("third", it.done)))  # type: ignore[misc]
        end(deferred)
        assert calls == [("first", True), ("second", True), ("third", True)]


def test_a_callback_may_add_another_one_and_complete_it_again() -> None:
    deferred: Deferred[int] = Deferred()
    calls: list[Any] = []

    def callback(it: Deferred[int]) -> None:
        calls.append(it.complete(2))
        it.then(lambda it: calls.append(it.value))

    deferred.then(callback)
    deferred.complete(1)
    assert calls == [False, 1]


def test_a_coroutine_waits_for_the_outcome() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        done, later, failing = Deferred[str](), Deferred[str](), Deferred[str]()
        done.complete("now")
        assert await outcome_of(done, loop.create_future()) == "now"
        loop.call_soon(later.complete, "later")
        assert await outcome_of(later, loop.create_future()) == "later"
        loop.call_soon(failing.fail, ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await outcome_of(failing, loop.create_future())

    asyncio.run(run())


def test_a_coroutine_that_is_cancelled_cancels_what_it_waits_for() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        for completes_in_the_same_turn in (False, True):
            deferred: Deferred[str] = Deferred()
            waiter = loop.create_task(outcome_of(deferred, loop.create_future()))
            await asyncio.sleep(0)
            waiter.cancel()
            if completes_in_the_same_turn:
                deferred.complete("late")
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert deferred.cancelled is not completes_in_the_same_turn

    asyncio.run(run())


def test_failed_result_leaves_no_reference_cycle() -> None:
    class Failure(Exception):
        """Can be referred to weakly, unlike a Deferred."""

    references = []

    def failed() -> Deferred[str]:
        error = Failure()
        references.append(weakref.ref(error))
        deferred = Deferred[str]()
        deferred.fail(error)
        return deferred

    async def wait() -> None:
        with suppress(Failure):
            await outcome_of(failed(), asyncio.get_running_loop().create_future())

    gc.disable()
    try:
        with suppress(Failure):
            failed().result()
        asyncio.run(wait())
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


def test_transformed_result_comes_with_the_source() -> None:
    source = Deferred[int]()
    text = transformed(source, str)
    assert not text.done
    source.complete(1)
    assert text.result() == "1"
    assert transformed(completed(2), str).result() == "2"


def test_transformed_result_fails_with_the_source_and_with_the_change() -> None:
    source = Deferred[str]()
    number, unused = transformed(source, int), Deferred[str]()
    source.complete("one")
    assert isinstance(number.error, ValueError)
    failed = transformed(unused, int)
    unused.fail(KeyError("k"))
    assert isinstance(failed.error, KeyError)


def test_cancellation_of_a_transformed_result_cancels_the_source() -> None:
    source = Deferred[int]()
    transformed(source, str).cancel()
    assert source.cancelled
    other = Deferred[int]()
    text = transformed(other, str)
    other.cancel()
    assert text.cancelled
