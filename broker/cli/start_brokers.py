"""`gregor start --brokers N`: a supervisor of N broker processes of this machine, which form one cluster.

One Python process uses one core; N of them use N. A broker that fails is started again, after 1 s, 2 s, .. up to 30 s;
a broker that was stopped cleanly stays down.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from gregor.broker import log
from gregor.broker.cluster.store_factory import NoSuchStore, check_members
from gregor.broker.jobs.reload import HangUp
from gregor.broker.launch import local_zookeeper
from gregor.broker.launch.supervisor import Child, StartFailed, Supervisor, broker_command, cpu_sets, end_of_orphans
from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.broker.log import logger
from gregor.broker.service_manager import ServiceManager
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.ensemble import DEFAULT_PORT
from gregor.config.listeners import address_text
from gregor.config.local_cluster import (
    MEMBER_FOLDER,
    OFFSETS_COPIES,
    TRANSACTIONS_COPIES,
    copies_for,
    member_settings,
    members_in,
)
from gregor.storage.fs.disk_errors import error_text

ZOOKEEPER_FOLDER = "zookeeper"


def run_brokers(given: argparse.Namespace, config: BrokerConfig) -> int:
    """Run until SIGTERM or SIGINT; return 1 if a broker could not start, or did not stop cleanly."""
    log.configure(label="supervisor", form=config[log.FORMAT_KEY])
    manager = ServiceManager()
    for warning in config.warnings:
        logger.warning("%s", warning)
    try:
        settings = member_settings(config, given.brokers)
        check_folders(config.log_dirs)
        zookeeper, probe, connect = None, None, config["zookeeper.connect"]
        check_members(connect)
        if not connect:
            zookeeper, probe, connect = zookeeper_beside(Path(config.log_dirs[0]) / ZOOKEEPER_FOLDER)
            # No other broker can join, and the creation of an internal topic waits for as many brokers as replicas.
            copies = copies_for(given.brokers, config.static_texts, (OFFSETS_COPIES, TRANSACTIONS_COPIES))
            common = {"zookeeper.connect": connect, **copies}
            settings = [{**own, **common} for own in settings]
        elif config["broker.rack"] is None:
            logger.info(
                "broker.rack is not set: if other machines run brokers of this cluster, set it on each of them to "
                "spread the replicas over the machines"
            )
    except OSError as error:
        print(f"gregor start: {error_text(error)}", file=sys.stderr)
        return 1
    except (ConfigError, NoSuchStore, ZooKeeperMissing) as error:
        print(f"gregor start: {error}", file=sys.stderr)
        return 1
    for line in left_out(config.log_dirs, given.brokers):
        logger.warning("%s", line)
    return asyncio.run(_supervise(given, settings, zookeeper, probe, manager))


def zookeeper_beside(folder: Path, output: Path | None = None) -> tuple[Callable[[], Child], Callable[[], bool], str]:
    """Prepare a ZooKeeper on this machine; raise ZooKeeperMissing, or OSError for the folder.

    Return a function that makes its child process (inside the event loop), one that tests whether it answers, and its
    zookeeper.connect.
    """
    lock = local_zookeeper.hold(folder / local_zookeeper.DATA)
    (port,) = local_zookeeper.free_ports(DEFAULT_PORT, 1)
    command = local_zookeeper.command_for(local_zookeeper.write_config(folder, port))
    file = output or folder / "zookeeper.log"

    def make() -> Child:
        return Child("zookeeper", command, output=file, inherits=(lock.descriptor,))

    return make, partial(local_zookeeper.serves, folder, port), f"127.0.0.1:{port}"


def check_folders(log_dirs: Sequence[str]) -> None:
    """Raise ConfigError if a folder contains the data of a single broker."""
    for folder in log_dirs:
        if os.path.exists(f"{folder}/meta.properties"):
            first = MEMBER_FOLDER.format(0)
            raise ConfigError(
                "log.dirs",
                folder,
                f"contains the data of a single broker; each broker of a local cluster has a folder of its own in it. "
                f"Name another folder, or move its content to {folder}/{first}, for the first broker",
            )


def left_out(log_dirs: Sequence[str], count: int) -> list[str]:
    """Return warnings about brokers of an earlier run that are not started now."""
    found = [index for index in members_in(log_dirs) if index >= count]
    if not found:
        return []
    names = ", ".join(MEMBER_FOLDER.format(index) for index in found)
    return [
        f"{names} in {','.join(log_dirs)} belonged to this cluster and is not started: partitions whose only replica is"
        f" there have no leader, others lack a replica. Start it again with --brokers {found[-1] + 1}, or move its"
        " replicas to the other brokers by a reassignment"
    ]


def member_name(index: int, own: Mapping[str, str]) -> str:
    """Return the name of a broker until it has reported its number, which may be generated."""
    number = own.get("broker.id", "-1")
    return f"broker {number}" if int(number) >= 0 else f"broker #{index}"


def arguments_for(given: argparse.Namespace, own: dict[str, str]) -> list[str]:
    """Return the arguments of one broker: those of the user, then its own settings."""
    words = [given.file] if given.file is not None else []
    if given.env:
        words.append("--env")
    for key, value in (*given.override, *own.items()):
        words += ["--override", f"{key}={value}"]
    return words


async def _supervise(
    given: argparse.Namespace,
    settings: Sequence[dict[str, str]],
    zookeeper: Callable[[], Child] | None,
    probe: Callable[[], bool] | None,
    manager: ServiceManager,
) -> int:
    cpus: Sequence[frozenset[int] | None] = [None] * len(settings)
    if given.cpu_affinity:
        cpus = cpu_sets(len(settings), sorted(os.sched_getaffinity(0)))
    brokers = []
    for index, own in enumerate(settings):
        name = member_name(index, own)
        command = broker_command(arguments_for(given, own), name)
        orphaned = end_of_orphans(zookeeper is not None)
        brokers.append(Child(name, command, cpus=cpus[index], when_orphaned=orphaned))
    supervisor = Supervisor(
        brokers, zookeeper() if zookeeper is not None else None, logger.info, logger.warning, restart=True
    )
    stop = stop_on_signals(supervisor)
    starting = asyncio.ensure_future(supervisor.start(probe))
    try:
        await first_of(starting, stop.wait())
        if starting.done():
            starting.result()
            are = "broker is" if len(brokers) == 1 else "brokers are"
            status = f"{len(brokers)} {are} ready: {bootstrap_of(brokers)}"
            logger.info("%s", status)
            manager.ready(status)
        await first_of(stop.wait(), supervisor.finished.wait())
    except StartFailed as error:
        logger.error("%s", error)
        return 1
    finally:
        starting.cancel()
        manager.stopping()
        await supervisor.stop()
    logger.info("stopped")
    return 0 if supervisor.clean else 1


def stop_on_signals(supervisor: Supervisor) -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set; after a second one the brokers do not wait for each other.

    SIGHUP is passed on to the brokers.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def request_stop() -> None:
        if stop.is_set():
            supervisor.hurry()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop)
    loop.add_signal_handler(signal.SIGHUP, HangUp(request_stop, supervisor.hang_up))
    return stop


async def first_of(*works: Awaitable[object]) -> None:
    """Wait until one of them is done; then cancel the coroutines among them, not the tasks."""
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, work in zip(tasks, works, strict=True):
        if task is not work:
            task.cancel()


def bootstrap_of(brokers: Sequence[Child]) -> str:
    """Return the addresses that the brokers reported when they were ready, for a client's bootstrap.servers."""
    found = []
    for child in brokers:
        for _, host, port in child.info.get("listeners", ())[:1]:
            host = (
                "localhost" if host in ("127.0.0.1", "0.0.0.0", "::") else host
            )  # clients seldom resolve localhost to ::1
            found.append(address_text(host, port))
    return ",".join(found)
