"""Ends, replaces or leaves behind a client whose library has locked itself up, which no signal and no timeout ends.

librdkafka 2.16 waits for itself without end when a broker is decommissioned while the answer about the end of a
leader's epoch fails: its main thread and the broker's thread each hold the lock that the other one needs
(https://github.com/confluentinc/librdkafka/issues/5476). A main thread that has nothing to do wakes up every second.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import gc
import os
import pathlib
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

STUCK_EXIT = 4
LOCKED_UP_S = 30.0
MAIN_THREAD = "rdk:main"
CLOSE_S = 60.0
TASKS = pathlib.Path("/proc/self/task")
_creation = threading.Lock()
T = TypeVar("T")
M = TypeVar("M", covariant=True)


def switches_of_main(tasks: pathlib.Path = TASKS, only: Collection[str] | None = None) -> dict[str, str] | None:
    """Return how often each main thread of the library has gone to sleep, by thread id; None if one is awake. `only`
    names the threads that count."""
    found = {}
    for task in tasks.glob("*"):
        try:
            if (task / "comm").read_text().strip() != MAIN_THREAD or (only is not None and task.name not in only):
                continue
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines() if ":" in line)
        except OSError:
            continue  # it has just ended
        if not status["State"].strip().startswith("S"):
            return None
        found[task.name] = status["voluntary_ctxt_switches"].strip()
    return found


def main_threads(tasks: pathlib.Path = TASKS) -> set[str]:
    """Return the ids of the library's main threads."""
    found = set()
    for task in tasks.glob("*"):
        with contextlib.suppress(OSError):  # it has just ended
            if (task / "comm").read_text().strip() == MAIN_THREAD:
                found.add(task.name)
    return found


class Watch:
    """Notices that a main thread has not woken up between two observations."""

    def __init__(self, observe: Callable[[], dict[str, str] | None] = switches_of_main) -> None:
        self._observe = observe
        self._before: dict[str, str] | None = None

    def is_locked_up(self) -> bool:
        now, before = self._observe(), self._before
        self._before = now
        return now is not None and before is not None and any(before.get(name) == count for name, count in now.items())


def end_when_locked_up() -> None:
    """Start a thread that ends this process with STUCK_EXIT."""

    def run() -> None:
        watch, never = Watch(), threading.Event()
        while not watch.is_locked_up():
            never.wait(LOCKED_UP_S)
        os._exit(STUCK_EXIT)

    threading.Thread(target=run, daemon=True).start()


def _called(call: Callable[[], T]) -> Future[T]:
    """Call in a thread of its own, which does not keep the process from ending if the call never returns."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as failure:
            future.set_exception(failure)

    threading.Thread(target=run, daemon=True).start()
    return future


def close_client(close: Callable[[], object]) -> None:
    """Close a client; one that locks itself up now is left behind."""
    with contextlib.suppress(TimeoutError):
        _called(close).result(CLOSE_S)


def collect_clients(collect: Callable[[], object] = gc.collect, limit_s: float = CLOSE_S) -> bool:
    """Destroy the clients that are garbage, most of them in a cycle with their callbacks. Return whether that ended.

    The garbage collector runs in whichever thread allocates, and librdkafka may wait without end for the threads of a
    client that it destroys. In a thread of its own, that delays no test; no later collection begins then.
    """
    try:
        _called(collect).result(limit_s)
    except TimeoutError:
        faulthandler.dump_traceback()
        return False
    return True


class Consuming(Protocol[M]):
    """The part of a consumer that is called here."""

    def consume(self, count: int, timeout_s: float, /) -> list[M]: ...

    def close(self) -> None: ...


class RevivedConsumer(Generic[M]):
    """A consumer of this process that is replaced when its library has locked itself up: when its main thread does not
    wake up, or a call does not return."""

    def __init__(
        self,
        make: Callable[[], Consuming[M]],
        watch: Callable[[Collection[str]], Watch] = lambda own: Watch(lambda: switches_of_main(only=own)),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.replaced = 0
        self._make = make
        self._new_watch = watch
        self._clock = clock
        self._create()

    def consume(self, count: int, timeout_s: float) -> list[M]:
        """Return what arrives; from a new consumer if the one before has locked itself up."""
        if self._clock() >= self._due_s:
            self._due_s = self._clock() + LOCKED_UP_S
            if self._watch.is_locked_up():
                self._replace()
        call = _called(functools.partial(self._consumer.consume, count, timeout_s))
        try:
            return call.result(timeout_s + LOCKED_UP_S)
        except TimeoutError:
            self._replace()
            return []

    def close(self) -> None:
        """Close the consumer; one that locks itself up now is left behind."""
        close_client(self._consumer.close)

    def _replace(self) -> None:
        # Its memory stays: the call that frees it would never return.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._consumer))
        self.replaced += 1
        self._create()

    def _create(self) -> None:
        # No other consumer of this class begins a main thread meanwhile.
        with _creation:
            before = main_threads()
            self._consumer = self._make()
            own = main_threads() - before
        self._watch = self._new_watch(own)
        self._due_s = self._clock() + LOCKED_UP_S
