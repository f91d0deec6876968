"""A result that comes later, without an event loop.

The party that will have the result makes a `Deferred` and completes it or fails it, unless it is cancelled; the party
that needs the result is called back at that moment, in the same turn. An acknowledgement that waits for the high
watermark, a fetch that waits for records, a join that waits for the other members and the position of a response among
those of its connection are all this one type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")


class DeferredCancelled(Exception):
    """The result is no longer needed, so there is none."""


class Deferred(Generic[ValueT]):
    """The first of `complete`, `fail` and `cancel` decides; the later ones have no effect and return False.

    `value` is None and `error` is None until then. Callbacks run in the order in which they were added, inside the call
    that decides; the cleanup of the party that makes the result is added first, so it precedes the use of the result.
    """

    __slots__ = ("_callbacks", "done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: ValueT | None = None
        self.error: BaseException | None = None
        self._callbacks: tuple[Callable[[Any], object], ...] = ()

    def complete(self, value: ValueT) -> bool:
        if self.done:
            return False
        self.value = value
        self._finish()
        return True

    def fail(self, error: BaseException) -> bool:
        if self.done:
            return False
        self.error = error
        self._finish()
        return True

    def cancel(self) -> bool:
        """Declare that the result is not needed; the party that would have made it is called back too."""
        return self.fail(DeferredCancelled())

    @property
    def cancelled(self) -> bool:
        return isinstance(self.error, DeferredCancelled)

    def result(self) -> ValueT:
        """Return the value or raise the error of a Deferred that is done."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                del self  # else the error's traceback refers to the Deferred, and that to the error: a cycle
        return self.value  # type: ignore[return-value]

    def then(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(self)` once this is done, at once if it is already."""
        if self.done:
            callback(self)
        else:
            self._callbacks += (callback,)

    def _finish(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)


def completed(value: ValueT) -> Deferred[ValueT]:
    """Return a Deferred that has its result already."""
    deferred: Deferred[ValueT] = Deferred()
    deferred.complete(value)
    return deferred


def transformed(source: Deferred[ValueT], change: Callable[[ValueT], ResultT]) -> Deferred[ResultT]:
    """Return the Deferred of `change(value)`. A cancellation of either one cancels the other."""
    changed: Deferred[ResultT] = Deferred()

    def complete(source: Deferred[ValueT]) -> None:
        if source.error is not None:
            changed.fail(source.error)
            return
        try:
            result = change(source.result())
        except Exception as error:  # a bug: the party that needs the result fails, not the one that completes it
            changed.fail(error)
        else:
            changed.complete(result)

    changed.then(lambda changed: source.cancel() if changed.cancelled else None)
    source.then(complete)
    return changed


class Wakeup(Protocol):
    """An unfinished future of the caller's event loop."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...
    def __await__(self) -> Any: ...


async def outcome_of(deferred: Deferred[ValueT], wakeup: Wakeup) -> ValueT:
    """Wait for the result in a coroutine, with a fresh future as `wakeup`. A cancellation cancels the Deferred too."""
    deferred.then(lambda _: None if wakeup.done() else wakeup.set_result(None))
    try:
        await wakeup
    finally:
        deferred.cancel()
    try:
        return deferred.result()
    finally:
        del deferred  # as in `result`
