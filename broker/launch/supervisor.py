"""Broker processes and perhaps a ZooKeeper on this machine, started, watched and stopped together.

Each child is a session of its own: Ctrl-C in the terminal reaches the supervisor alone, which stops the brokers first,
one after the other, so that each can move its leaderships to the others, and ZooKeeper last. If the supervisor is
killed, its children end, too (Linux). A broker reports that it serves by a line of JSON on a descriptor it inherits.

A start is one step without an await, and so it cannot be cancelled half way: with asyncio's own subprocesses (Python
3.11) a start that is cancelled between the fork and the first turn of the loop may never learn that the child ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Thread
from typing import IO, Any

_PR_SET_PDEATHSIG = 1

STOP_TIMEOUT_S = 60.0
"""A child that has not ended this long after SIGTERM is killed."""
ALONE_S = 3.0
"""The time that a broker has to stop before the next one is stopped, too. Mostly it is done by then; else it waits for
brokers to lead its partitions that have stopped before it, and so will those after it: they wait at the same time."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
STEADY_S = 60.0
"""A child that ran for this long is started again as if it had never failed."""

SLOW_S = 15.0
"""If a child is not ready this long after the others, a line names it."""

_PROBE_EVERY_S = 0.05

Report = Callable[[str], None]


class State(Enum):
    """The state of one child; the values are shown to users."""

    DOWN = "down"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"


class StartFailed(Exception):
    """One of the children could not start; the text names it, and where its reason is logged."""

    def __init__(self, child: Child, text: str) -> None:
        super().__init__(text)
        self.child = child


class Backoff:
    """The pause before the next start of a child that ended: longer each time, until it has run for STEADY_S."""

    def __init__(self) -> None:
        self._pause_s = 0.0

    def next_s(self, ran_s: float) -> float:
        if ran_s >= STEADY_S:
            self._pause_s = 0.0
        self._pause_s = min(max(FIRST_PAUSE_S, self._pause_s * 2), LONGEST_PAUSE_S)
        return self._pause_s


class Child:
    """One process, which can be started again after its end."""

    def __init__(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        *,
        output: Path | None = None,
        cpus: frozenset[int] | None = None,
        when_orphaned: signal.Signals = signal.SIGTERM,
        inherits: Sequence[int] = (),
    ) -> None:
        """`command(descriptor)` returns the command to run, given the descriptor on which the child reports that it is
        ready. `output`: the file to which standard output and error are appended; None: the supervisor's own. `cpus`:
        the only ones the child may use. `when_orphaned`: the signal it gets when the supervisor is killed (Linux).
        `inherits`: descriptors it gets."""
        self.name = name
        self.state = State.DOWN
        self.info: dict[str, Any] = {}
        """The line of JSON that it reported when it was ready."""
        self.exit_text = ""
        """How it ended the last time, or why it could not be started."""
        self.exit_code: int | None = None
        self.ready = asyncio.Event()
        self.output = output
        self._command = command
        self._cpus = cpus
        self._when_orphaned = when_orphaned
        self._inherits = tuple(inherits)
        self._process: Popen[bytes] | None = None
        self._ended = asyncio.Event()
        self._started_s = 0.0
        self._hangs_up = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None or self.state is State.DOWN else self._process.pid

    @property
    def ran_s(self) -> float:
        return time.monotonic() - self._started_s

    def start(self) -> None:
        """Start it; returns at once. Raises OSError if there is no such program, or no file for its output."""
        read, write = os.pipe()
        log: IO[bytes] | None = None
        try:
            if self.output is not None:
                self.output.parent.mkdir(parents=True, exist_ok=True)
                log = self.output.open("ab")
            self._process = Popen(
                self._command(write),
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(write, *self._inherits),
                start_new_session=True,
                preexec_fn=_prepare(self._when_orphaned, self._cpus),
            )
        except OSError as error:
            os.close(read)
            self.exit_text = str(error)
            raise
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
            if log is not None:
                log.close()
        self.ready.clear()
        self._ended.clear()
        self.info = {}
        self.state = State.STARTING
        self.exit_code = None
        self._hangs_up = False
        self._started_s = time.monotonic()
        self._await_report(read)
        Thread(target=self._reap, args=(self._process, asyncio.get_running_loop()), daemon=True).start()

    def _reap(self, process: Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        """Wait for its end, on a thread of its own, and pass the exit code to the loop."""
        code = process.wait()
        with suppress(RuntimeError):  # the loop is closed: there is no waiter
            loop.call_soon_threadsafe(self._is_down, code)

    def _is_down(self, code: int) -> None:
        self.state = State.DOWN
        self.exit_code = code
        self.exit_text = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._ended.set()

    def _await_report(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        process, received = self._process, bytearray()

        def readable() -> None:
            part = os.read(descriptor, 65536)
            received.extend(part)
            if part and not received.endswith(b"\n"):
                return
            loop.remove_reader(descriptor)
            os.close(descriptor)
            if received.endswith(b"\n") and self._process is process:
                self.info = json.loads(received)
                self.is_ready()

        loop.add_reader(descriptor, readable)

    def is_ready(self) -> None:
        """Note that it serves."""
        if self.state is State.STARTING:
            self.state = State.READY
            self.ready.set()
            if self._hangs_up:
                self.hang_up()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._ended.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None and self.state is not State.DOWN:
            if number in (signal.SIGTERM, signal.SIGKILL):
                self.state = State.STOPPING
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def hang_up(self) -> None:
        """Send it SIGHUP once it is ready: it would end one that has not installed its handler yet."""
        self._hangs_up = self.state is State.STARTING
        if self.state is State.READY:
            self.send_signal(signal.SIGHUP)


class Supervisor:
    """Runs the brokers, and the ZooKeeper that they need, if it is this supervisor's.

    `restart`: a child that fails is started again, after a pause that grows; one that ends cleanly, because a user
    stopped it, stays down. `report` gets a line for each event, `warn` one for each that a user should know.
    """

    def __init__(
        self, brokers: Sequence[Child], zookeeper: Child | None, report: Report, warn: Report, *, restart: bool
    ) -> None:
        self.brokers = brokers
        self.zookeeper = zookeeper
        self.clean = True
        """Whether every broker that `stop` had to stop ended well."""
        self.finished = asyncio.Event()
        """Set when every broker is down and stays so."""
        self._report = report
        self._warn = warn
        self._restart = restart
        self._stopping = False
        self._hurried = 0
        self._watchers: dict[Child, asyncio.Task[None]] = {}
        self._failed: asyncio.Future[StartFailed] = asyncio.get_running_loop().create_future()
        self._served: set[Child] = set()

    async def start(self, probe: Callable[[], bool] | None = None) -> None:
        """Start all; returns when each is ready. `probe` returns whether ZooKeeper answers. Raises StartFailed; `stop`
        must be called after that, too."""
        if self.zookeeper is not None:
            assert probe is not None
            self._start(self.zookeeper)
            await self._or_failure(self.zookeeper, self._probe(self.zookeeper, probe))
            self._served.add(self.zookeeper)
            self._report(f"{self.zookeeper.name} (pid {self.zookeeper.pid}) is ready")
        for child in self.brokers:
            self._start(child)
        for child in self.brokers:
            await self._or_failure(child, child.ready.wait())
            self._served.add(child)
            self._report(f"{child.name} (pid {child.pid}) is ready")

    async def _probe(self, child: Child, probe: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if await loop.run_in_executor(None, probe):
                break
            await asyncio.sleep(_PROBE_EVERY_S)
        child.is_ready()

    def _start(self, child: Child) -> None:
        try:
            child.start()
        except OSError as error:
            raise StartFailed(child, f"{child.name} cannot be started: {error.strerror or error}") from None
        self._watchers[child] = asyncio.create_task(self._watch(child))

    async def _or_failure(self, child: Child, work: Coroutine[Any, Any, object]) -> None:
        """Wait for the work that ends when this child is ready. Raises StartFailed if a child fails meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            both = (task, self._failed)
            done, _ = await asyncio.wait(both, timeout=SLOW_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self._report(f"{child.name} has not started after {SLOW_S:g} s; {self._where(child)}")
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
        if self._failed.done():
            raise self._failed.result()

    async def _watch(self, child: Child) -> None:
        """Watch one child, from its start until it is down for good."""
        backoff = Backoff()
        while True:
            await child.wait()
            if self._stopping:
                return
            if child not in self._served:
                if not self._failed.done():
                    text = f"{child.name} could not start ({child.exit_text}); {self._where(child)}"
                    self._failed.set_result(StartFailed(child, text))
                return
            if not self._restart or child.exit_code == 0:
                self._warn(f"{child.name} has ended ({child.exit_text}) and stays down; {self._where(child)}")
                if all(one.state is State.DOWN for one in self.brokers):
                    self.finished.set()
                return
            while True:
                pause_s = backoff.next_s(child.ran_s)
                self._warn(f"{child.name} has ended ({child.exit_text}); it is started again in {pause_s:g} s")
                await asyncio.sleep(pause_s)
                try:
                    child.start()
                    break
                except OSError:
                    continue
            self._report(f"{child.name} is started again (pid {child.pid})")

    @staticmethod
    def _where(child: Child) -> str:
        return "the reason is above" if child.output is None else f"its log is {child.output}"

    def hang_up(self) -> None:
        """Pass SIGHUP on to the brokers, to each once it is ready."""
        for child in self.brokers:
            child.hang_up()

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self.brokers:
            child.send_signal(number)

    async def stop(self) -> None:
        """Stop the brokers first, then ZooKeeper, each with time to end; no process is left when this returns."""
        self._stopping = True
        ending: list[asyncio.Future[None]] = []
        for child in reversed(self.brokers):
            ending.append(asyncio.ensure_future(self._stop_broker(child)))
            await asyncio.wait(ending[-1:], timeout=ALONE_S)
        await asyncio.gather(*ending)
        if self.zookeeper is not None:
            await self._stop(self.zookeeper)

    async def _stop_broker(self, child: Child) -> None:
        running = child.state is not State.DOWN
        await self._stop(child)
        # A child that has not installed its signal handlers yet ends at once, and has nothing open.
        fine = (0,) if child in self._served else (0, -signal.SIGTERM)
        if running and child.exit_code not in fine:
            self.clean = False

    async def _stop(self, child: Child) -> None:
        watcher = self._watchers.get(child)
        if watcher is None:
            return
        if child.state is State.DOWN:
            watcher.cancel()  # the child may be in its pause
            return
        self._report(f"stopping {child.name}")
        child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await child.wait()
        except TimeoutError:
            self._warn(f"{child.name} has not ended {STOP_TIMEOUT_S:g} s after SIGTERM, it is killed")
            child.send_signal(signal.SIGKILL)
            await child.wait()

    def hurry(self) -> None:
        """Handle another request to stop: the brokers end all at once, without waiting for each other; at one more, all
        are killed. The records that were acknowledged are in their files all the same."""
        self._hurried += 1
        if self._hurried == 1:
            self._report("all brokers stop at the same time now; one more signal kills them")
            self._signal_all(signal.SIGTERM)
        else:
            self._signal_all(signal.SIGKILL)
            if self.zookeeper is not None:
                self.zookeeper.send_signal(signal.SIGKILL)


def broker_command(arguments: Sequence[str], label: str = "") -> Callable[[int], list[str]]:
    """Return the command of a child that is `gregor start` with these arguments."""

    def command(descriptor: int) -> list[str]:
        start = [sys.executable, "-P", "-m", "gregor.broker", "start", *arguments]
        return [*start, "--no-banner", f"--ready-fd={descriptor}", f"--log-label={label}"]

    return command


def announce_ready(descriptor: int, info: Mapping[str, Any]) -> None:
    """Report to the supervisor, once, that this child serves."""
    with suppress(OSError):
        os.write(descriptor, json.dumps(info).encode() + b"\n")
        os.close(descriptor)


def end_of_orphans(own_zookeeper: bool) -> signal.Signals:
    """Return the signal that a broker gets when the supervisor is killed. If ZooKeeper ends at the same moment, a clean
    stop would wait in vain for another broker to lead; the next start recovers what was written."""
    return signal.SIGKILL if own_zookeeper else signal.SIGTERM


def cpu_sets(count: int, available: Sequence[int]) -> list[frozenset[int]]:
    """Return one processor for each of `count` brokers, in turn: each is used before one is used twice."""
    return [frozenset({available[index % len(available)]}) for index in range(count)]


def _prepare(when_orphaned: signal.Signals, cpus: frozenset[int] | None) -> Callable[[], None]:
    """Return the function that a child calls between fork and exec."""
    libc, parent = None, os.getpid()
    if sys.platform == "linux":
        import ctypes  # a broker that only reports that it is ready does not need it

        libc = ctypes.CDLL(None)

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, when_orphaned)
            if os.getppid() != parent:  # the supervisor was killed before prctl
                os._exit(1)
        if cpus is not None:
            os.sched_setaffinity(0, cpus)

    return prepare
