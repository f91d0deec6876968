"""gregor.broker.launch.supervisor: children are shell scripts here, which begin and end within milliseconds."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.launch import supervisor as tested
from gregor.broker.launch.supervisor import Backoff, Child, StartFailed, State, Supervisor, announce_ready, cpu_sets
from tests.support.processes import ROOT, clean_environment

READY = 'echo "{}" >/dev/fd/$0; '
OBEY = "trap 'exit 0' TERM; "
SLEEP = "while :; do sleep 0.01; done"  # nothing is left of it for long when the shell is killed
SERVE = OBEY + READY + SLEEP  # in this order: a child that is ready can be stopped
LIMIT_S = 120


def child(script: str, name: str = "broker 0", output: Path | None = None) -> Child:
    return Child(name, lambda descriptor: ["sh", "-c", script, str(descriptor)], output=output)


class Watched:
    """A supervisor that keeps its lines."""

    def __init__(self, brokers: Sequence[Child], zookeeper: Child | None = None, *, restart: bool = False) -> None:
        self.said: list[str] = []
        self.supervisor = Supervisor(brokers, zookeeper, self.said.append, self.said.append, restart=restart)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, LIMIT_S))


async def until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(0.002)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "FIRST_PAUSE_S", 0.005)


def kill(one: Child) -> None:
    assert one.pid is not None
    os.kill(one.pid, signal.SIGKILL)


def test_pauses_grow_and_begin_anew_after_a_steady_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "FIRST_PAUSE_S", 1.0)
    backoff = Backoff()
    assert [backoff.next_s(0.1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff.next_s(tested.STEADY_S) == 1
    assert backoff.next_s(1) == 2


def test_started_in_order_and_stopped_brokers_first() -> None:
    async def scenario() -> None:
        zookeeper = child(OBEY + SLEEP, "zookeeper")
        brokers = [child(SERVE, f"broker {number}") for number in range(2)]
        answers = iter([False, True])
        watched = Watched(brokers, zookeeper)
        await watched.supervisor.start(lambda: next(answers))
        assert [one.state for one in (zookeeper, *brokers)] == [State.READY] * 3
        ready = [line.partition(" (")[0] for line in watched.said]
        assert ready == ["zookeeper", "broker 0", "broker 1"]
        watched.said.clear()
        await watched.supervisor.stop()
        assert watched.said == ["stopping broker 1", "stopping broker 0", "stopping zookeeper"]
        assert [one.state for one in (zookeeper, *brokers)] == [State.DOWN] * 3
        assert watched.supervisor.clean

    run(scenario())


def test_the_report_of_a_child_is_kept() -> None:
    async def scenario() -> None:
        one = child(OBEY + 'echo "{\\"broker_id\\": 7}" >/dev/fd/$0; ' + SLEEP)
        watched = Watched([one])
        await watched.supervisor.start()
        assert (one.info, one.pid is not None) == ({"broker_id": 7}, True)
        await watched.supervisor.stop()

    run(scenario())


@pytest.mark.parametrize(("restart", "script"), [(False, "exit 3"), (True, "exit 3"), (True, "exit 0")])
def test_a_child_that_never_served_ends_the_start_with_its_cause(restart: bool, script: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        other = child(SERVE, "broker 1")
        watched = Watched([child(script, output=tmp_path / "logs" / "0.log"), other], restart=restart)
        with pytest.raises(
            StartFailed, match=rf"broker 0 could not start \(exit code {script[-1]}\); its log is .*0.log"
        ):
            await watched.supervisor.start()
        await watched.supervisor.stop()
        assert other.state is State.DOWN

    run(scenario())


def test_who_takes_long_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tested, "SLOW_S", 0.001)

    async def scenario() -> None:
        one = child(OBEY + SLEEP, output=tmp_path / "log")
        watched = Watched([one])
        starting = asyncio.ensure_future(watched.supervisor.start())
        await until(lambda: bool(watched.said))
        assert watched.said == [f"broker 0 has not started after 0.001 s; its log is {tmp_path}/log"]
        one.is_ready()
        await starting
        await watched.supervisor.stop()

    run(scenario())


def test_a_program_that_is_not_there() -> None:
    async def scenario() -> None:
        watched = Watched([Child("broker 0", lambda descriptor: ["/no/such/program"])])
        with pytest.raises(StartFailed, match="broker 0 cannot be started: No such file"):
            await watched.supervisor.start()
        await watched.supervisor.stop()

    run(scenario())


def test_a_child_that_fails_is_started_again_each_time() -> None:
    async def scenario() -> None:
        one = child(SERVE)
        watched = Watched([one], restart=True)
        await watched.supervisor.start()
        for _ in range(2):
            before = one.pid
            kill(one)
            await until(lambda before=before: one.pid not in (None, before) and one.state is State.READY)  # type: ignore[misc]
        assert [line for line in watched.said if "has ended" in line] == [
            "broker 0 has ended (killed by SIGKILL); it is started again in 0.005 s",
            "broker 0 has ended (killed by SIGKILL); it is started again in 0.01 s",
        ]
        assert not watched.supervisor.finished.is_set()
        await watched.supervisor.stop()

    run(scenario())


@pytest.mark.parametrize(("restart", "number"), [(True, signal.SIGTERM), (False, signal.SIGKILL)])
def test_a_child_that_was_stopped_or_is_not_to_be_restarted_stays_down(restart: bool, number: signal.Signals) -> None:
    async def scenario() -> None:
        brokers = [child(SERVE, f"broker {index}") for index in range(2)]
        watched = Watched(brokers, restart=restart)
        await watched.supervisor.start()
        os.kill(brokers[1].pid or 0, number)
        await until(lambda: brokers[1].state is State.DOWN)
        assert not watched.supervisor.finished.is_set()
        os.kill(brokers[0].pid or 0, number)
        await watched.supervisor.finished.wait()
        assert sum("stays down" in line for line in watched.said) == 2
        await watched.supervisor.stop()

    run(scenario())


def test_a_stop_during_the_pause_starts_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "FIRST_PAUSE_S", 60.0)

    async def scenario() -> None:
        one = child(SERVE)
        watched = Watched([one], restart=True)
        await watched.supervisor.start()
        kill(one)
        await until(lambda: any("started again in" in line for line in watched.said))
        await watched.supervisor.stop()
        assert one.state is State.DOWN

    run(scenario())


def test_a_child_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "STOP_TIMEOUT_S", 0.01)

    async def scenario() -> None:
        one = child("trap '' TERM; " + READY + SLEEP)
        watched = Watched([one])
        await watched.supervisor.start()
        await watched.supervisor.stop()
        assert watched.said[-1].startswith("broker 0 has not ended")
        assert one.exit_text == "killed by SIGKILL"
        assert not watched.supervisor.clean

    run(scenario())


def test_a_child_that_ends_slowly_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "ALONE_S", 0.01)

    async def scenario() -> None:
        waits = child("trap '' TERM; " + READY + SLEEP, "broker 1")
        zookeeper = child(OBEY + SLEEP, "zookeeper")
        watched = Watched([child(SERVE, "broker 0"), waits], zookeeper)
        await watched.supervisor.start(lambda: True)
        stopping = asyncio.ensure_future(watched.supervisor.stop())
        await until(lambda: watched.supervisor.brokers[0].state is State.DOWN)
        assert (waits.state, zookeeper.state) == (State.STOPPING, State.READY)
        waits.send_signal(signal.SIGKILL)
        await stopping
        assert {waits.state, zookeeper.state} == {State.DOWN}
        assert not watched.supervisor.clean

    run(scenario())


def test_asked_again_and_again_it_ends_at_once() -> None:
    async def scenario() -> None:
        brokers = [child("trap '' TERM; " + READY + SLEEP, f"broker {index}") for index in range(2)]
        zookeeper = child("trap '' TERM; " + SLEEP, "zookeeper")
        watched = Watched(brokers, zookeeper)
        await watched.supervisor.start(lambda: True)
        stopping = asyncio.ensure_future(watched.supervisor.stop())
        await until(lambda: brokers[1].state is State.STOPPING)
        watched.supervisor.hurry()
        assert (brokers[0].state, zookeeper.state) == (State.STOPPING, State.READY)
        watched.supervisor.hurry()
        await stopping
        assert [one.exit_text for one in (*brokers, zookeeper)] == ["killed by SIGKILL"] * 3
        assert not watched.supervisor.clean

    run(scenario())


@pytest.mark.parametrize("with_zookeeper", [True, False])
def test_a_stop_right_after_the_start_leaves_nobody(with_zookeeper: bool) -> None:
    """A start that is cancelled, in any turn: the others are found and ended."""

    async def scenario(turns: int) -> None:
        brokers = [child(SERVE, f"broker {index}") for index in range(2)]
        zookeeper = child(OBEY + SLEEP, "zookeeper") if with_zookeeper else None
        watched = Watched(brokers, zookeeper)
        starting = asyncio.ensure_future(watched.supervisor.start(lambda: False))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await watched.supervisor.stop()
        assert {one.state for one in (*brokers, zookeeper) if one} == {State.DOWN}
        assert watched.supervisor.clean

    for turns in range(4):
        run(scenario(turns))


def test_what_it_inherits_stays_open() -> None:
    async def scenario() -> None:
        read, write = os.pipe()
        one = Child("one", lambda descriptor: ["sh", "-c", f"echo held >/dev/fd/{write}"], inherits=(write,))
        one.start()
        os.close(write)
        await one.wait()
        assert (os.read(read, 100), one.exit_code) == (b"held\n", 0)
        os.close(read)

    run(scenario())


def test_a_child_that_starts_is_not_ended_by_a_signal_for_its_handler(tmp_path: Path) -> None:
    async def scenario() -> None:
        go = tmp_path / "go"
        script = f"while [ ! -e {go} ]; do sleep 0.01; done; trap 'echo again' HUP; " + SERVE
        starts = child(script, output=tmp_path / "out")
        watched = Watched([starts])
        watched.supervisor.hang_up()  # it is down: nothing happens
        starting = asyncio.ensure_future(watched.supervisor.start())
        await until(lambda: starts.state is State.STARTING)
        watched.supervisor.hang_up()
        go.touch()
        await starting
        await until(lambda: (tmp_path / "out").read_text() == "again\n")
        assert starts.state is State.READY
        await watched.supervisor.stop()

    run(scenario())


def test_signals_are_passed_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        one = child("trap 'echo again' HUP; " + READY + SLEEP, output=tmp_path / "out")
        watched = Watched([one])
        await watched.supervisor.start()
        watched.supervisor.hang_up()
        await until(lambda: (tmp_path / "out").read_text() == "again\n")
        assert one.state is State.READY
        await watched.supervisor.stop()

    run(scenario())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a promise of Linux")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_children_do_not_outlive_a_supervisor_that_is_killed(number: str) -> None:
    script = f"""
import asyncio
import signal
from gregor.broker.launch.supervisor import Child

async def main():
    command = ["sh", "-c", {READY + SLEEP!r}]
    child = Child("broker 0", lambda descriptor: [*command, str(descriptor)], when_orphaned=signal.{number})
    child.start()
    await child.ready.wait()
    print(child.pid, flush=True)
    await child.wait()

asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + LIMIT_S
    while _runs(pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Its end may not have been noticed yet."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_readiness_goes_over_the_descriptor() -> None:
    read, write = os.pipe()
    announce_ready(write, {"broker_id": 1})
    assert os.read(read, 100) == b'{"broker_id": 1}\n'
    assert os.read(read, 100) == b""
    os.close(read)


def test_processors_are_used_in_turn() -> None:
    assert cpu_sets(5, [0, 2]) == [{0}, {2}, {0}, {2}, {0}]
