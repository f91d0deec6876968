"""Brokers that die, in processes of their own, with a session that would last a minute."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.broker.session_watcher.predecessor import FILE_NAME, SessionNote
from gregor.broker.session_watcher.session_end import close_session
from gregor.replication.store import nodes
from tests.support.gregor_cluster import GregorCluster
from tests.support.session_watchers import watcher_of
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.very_slow]

SESSION = {"zookeeper.session.timeout.ms": "60000"}
WELL_BEFORE_S = 40.0
"""Less than the session, and far more than the watcher needs on a busy machine."""

SHORT_SESSION_MS = 6000
"""Two ticks, the shortest that ZooKeeper grants. The client sends a heartbeat in each third of it."""


def pid_of(cluster: GregorCluster, broker_id: int) -> int:
    process = cluster.brokers[broker_id].process
    assert process is not None
    return process.pid


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def until_gone(cluster: GregorCluster, pid: int) -> None:
    cluster.until(lambda: not is_alive(pid), f"the watcher {pid} ends")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GregorCluster]:
    # 60 s are within 20 ticks
    with GregorCluster(tmp_path_factory.mktemp("cluster"), 2, SESSION, tick_ms=3000) as cluster:
        yield cluster


def test_the_session_of_a_killed_broker_ends_at_once(cluster: GregorCluster) -> None:
    watcher = watcher_of(pid_of(cluster, 1))
    assert watcher is not None
    status = Path(f"/proc/{watcher}/status").read_text()
    resident_kb = int(status.split("VmRSS:")[1].split()[0])
    assert resident_kb < 12 * 1024
    started_s = time.monotonic()
    cluster.kill(1)
    cluster.until(lambda: cluster.registered() == {0}, "the registration of the killed broker is gone", WELL_BEFORE_S)
    until_gone(cluster, watcher)
    assert "ended without closing its ZooKeeper session" in cluster.log_tails()
    assert time.monotonic() - started_s < WELL_BEFORE_S
    cluster.start(1)
    assert cluster.registered() == {0, 1}


def test_a_clean_stop_parts_from_the_watcher(cluster: GregorCluster) -> None:
    watcher = watcher_of(pid_of(cluster, 1))
    assert watcher is not None
    note = cluster.brokers[1].folder / "data" / FILE_NAME
    assert note.stat().st_mode & 0o777 == 0o600
    assert cluster.stop(1) == 0
    until_gone(cluster, watcher)
    assert not note.exists()
    cluster.start(1)


def test_a_watcher_survives_the_signals_of_its_broker_and_is_replaced_when_it_ends(cluster: GregorCluster) -> None:
    broker = pid_of(cluster, 1)
    first = watcher_of(broker)
    assert first is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(first, number)
    os.kill(first, signal.SIGKILL)
    cluster.until(lambda: watcher_of(broker) not in (None, first), "another watcher runs")
    second = watcher_of(broker)
    assert second is not None
    cluster.kill(1)
    cluster.until(lambda: cluster.registered() == {0}, "the second watcher closes the session", WELL_BEFORE_S)
    cluster.start(1)


def test_a_broker_that_starts_again_closes_the_session_of_its_last_process(cluster: GregorCluster) -> None:
    broker = pid_of(cluster, 1)
    watcher = watcher_of(broker)
    assert watcher is not None
    os.kill(watcher, signal.SIGSTOP)  # as if the machine were too busy
    try:
        cluster.kill(1)
        started_s = time.monotonic()
        cluster.start(1)
        assert time.monotonic() - started_s < WELL_BEFORE_S
        assert "which this broker's last process has left open" in cluster.log_tails()
    finally:
        os.kill(watcher, signal.SIGCONT)
    # It finds no session any more, and logs nothing.
    until_gone(cluster, watcher)
    assert cluster.registered() == {0, 1}


def session_of(cluster: GregorCluster, broker_id: int) -> int:
    stat = cluster.nodes.retry(cluster.nodes.exists, nodes.broker_path(broker_id))
    return 0 if stat is None else int(stat.ephemeralOwner)


def test_the_session_that_is_closed_is_the_newest(cluster: GregorCluster) -> None:
    noted = SessionNote(str(cluster.brokers[1].folder / "data"))
    first = noted.read()
    assert first is not None and first.session_id == session_of(cluster, 1)
    assert close_session(first, WELL_BEFORE_S)  # the broker registers anew, in another session
    cluster.until(lambda: session_of(cluster, 1) not in (0, first.session_id), "the broker is registered again")
    second = noted.read()
    assert second is not None and second.session_id == session_of(cluster, 1)
    cluster.kill(1)
    cluster.until(lambda: cluster.registered() == {0}, "the second session is closed", WELL_BEFORE_S)
    cluster.start(1)


def test_a_clean_stop_without_zookeeper_leaves_the_session_to_the_watcher(cluster: GregorCluster) -> None:
    watcher = watcher_of(pid_of(cluster, 1))
    assert watcher is not None
    assert isinstance(cluster.zookeeper, ZooKeeperProcess)
    cluster.zookeeper.kill()
    assert cluster.stop(1) == 0
    assert is_alive(watcher)
    assert (cluster.brokers[1].folder / "data" / FILE_NAME).exists()  # for the next process, if the watcher gives up
    cluster.zookeeper.start()
    cluster.until(lambda: cluster.registered() == {0}, "the watcher closes the session", WELL_BEFORE_S)
    until_gone(cluster, watcher)
    cluster.start(1)


def test_without_the_watcher_a_killed_broker_stays_registered_until_its_session_ends(cluster: GregorCluster) -> None:
    broker = cluster.brokers[1]
    settings = dict(broker.overrides)
    assert cluster.stop(1) == 0
    broker.overrides |= {"gregor.session.watcher": "false", "zookeeper.session.timeout.ms": f"{SHORT_SESSION_MS}"}
    try:
        cluster.start(1)
        assert watcher_of(pid_of(cluster, 1)) is None
        assert not (broker.folder / "data" / FILE_NAME).exists()
        killed_s = time.monotonic()
        cluster.kill(1)
        cluster.until(lambda: cluster.registered() == {0}, "the session of the killed broker ends")
        assert time.monotonic() - killed_s > SHORT_SESSION_MS / 1000 / 2
    finally:
        broker.overrides = settings
    cluster.start(1)
