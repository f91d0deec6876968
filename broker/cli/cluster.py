"""`gregor cluster`: a ZooKeeper and some brokers on this machine, for trials and tests.

A broker that dies is shown and stays down, so that the behaviour of the other brokers can be observed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from gregor.broker.cli.cluster_view import (
    COLUMNS,
    ClusterSnapshot,
    Member,
    changes,
    fetch_snapshot,
    last_error,
    rows,
    summary,
)
from gregor.broker.cli.command import KEY_VALUE, run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.start_brokers import (
    bootstrap_of,
    check_folders,
    first_of,
    left_out,
    member_name,
    stop_on_signals,
    zookeeper_beside,
)
from gregor.broker.cli.tables import on_terminal, print_if_open
from gregor.broker.cli.wire import WireClient
from gregor.broker.cluster.store_factory import NoSuchStore, check_members
from gregor.broker.launch.local_zookeeper import free_ports
from gregor.broker.launch.supervisor import Child, StartFailed, State, Supervisor, broker_command, end_of_orphans
from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.ensemble import DEFAULT_PORT
from gregor.config.local_cluster import (
    OFFSETS_COPIES,
    TOPICS_COPIES,
    TRANSACTIONS_COPIES,
    copies_for,
    member_settings,
)
from gregor.storage.fs.disk_errors import error_text

POLL_EVERY_S = 1.0
FIRST_PORT = 9092
_EVENTS_SHOWN = 8

EPILOG = """\b
Examples:
  gregor cluster
  gregor cluster --brokers 5 --dir /tmp/five --override min.insync.replicas=2
  gregor cluster --port 0 --zookeeper localhost:2181/trial
"""


@click.command("cluster", epilog=EPILOG)
@click.option("--brokers", "count", default=3, show_default=True, type=click.IntRange(1, 64), help="Number of brokers.")
@click.option(
    "--dir",
    "folder",
    default="gregor-cluster",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for data and logs; a start with the same folder continues its cluster.",
)
@click.option("--override", "overrides", multiple=True, type=KEY_VALUE, help="Setting of all brokers; repeatable.")
@click.option("--zookeeper", metavar="HOST:PORT,..", help="A running ZooKeeper; by default one is started.")
@click.option(
    "--port",
    default=FIRST_PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the first broker; the others have the next free ones. 0: any free ports.",
)
def cluster(count: int, folder: Path, overrides: Sequence[tuple[str, str]], zookeeper: str | None, port: int) -> None:
    """Run a ZooKeeper and brokers on this machine until Ctrl-C."""
    try:
        plan = make_plan(count, folder, dict(overrides), zookeeper, port)
    except (ConfigError, NoSuchStore, ZooKeeperMissing) as error:
        raise CommandError(f"{error}.") from None
    except OSError as error:
        raise CommandError(f"{error_text(error, str(folder))}.") from None
    code = asyncio.run(_run(plan))
    if code:
        raise click.exceptions.Exit(code)


@dataclass(slots=True)
class Plan:
    """The processes to start. `settings` are those of each broker; `zookeeper` makes the process of a new ZooKeeper."""

    folder: Path
    settings: list[dict[str, str]]
    connect: str
    zookeeper: Callable[[], Child] | None = None
    probe: Callable[[], bool] | None = None
    events: list[str] = field(default_factory=list)


def make_plan(count: int, folder: Path, overrides: dict[str, str], zookeeper: str | None, port: int) -> Plan:
    """Return the plan; raise ConfigError, OSError for the folder or the ports, NoSuchStore or ZooKeeperMissing."""
    folder.mkdir(parents=True, exist_ok=True)
    common = {
        **({} if "node.id" in overrides else {"broker.id": "0"}),
        **({} if "log.dir" in overrides else {"log.dirs": str(folder.absolute())}),
        **copies_for(count, overrides, (OFFSETS_COPIES, TRANSACTIONS_COPIES, TOPICS_COPIES)),
        **overrides,
    }
    log_dirs = BrokerConfig(common).log_dirs
    check_folders(log_dirs)
    make, probe, connect = None, None, zookeeper or overrides.get("zookeeper.connect", "")
    check_members(connect)
    if not connect:
        make, probe, connect = zookeeper_beside(folder.absolute() / "zookeeper", folder / "logs" / "zookeeper.log")
    common["zookeeper.connect"] = connect
    settings = [{**common, **own} for own in member_settings(BrokerConfig(common), count)]
    if "listeners" not in overrides:
        used = [DEFAULT_PORT] if make is None else [DEFAULT_PORT, int(connect.rpartition(":")[2])]
        for own, free in zip(settings, free_ports(port, count, used), strict=True):
            own["listeners"] = f"PLAINTEXT://localhost:{free}"
    return Plan(folder, settings, connect, make, probe, left_out(log_dirs, count))


async def _run(plan: Plan) -> int:
    screen = _Screen(plan)
    brokers = []
    for index, own in enumerate(plan.settings):
        words = [word for key, value in own.items() for word in ("--override", f"{key}={value}")]
        name = member_name(index, own)
        output = plan.folder / "logs" / f"{name.replace(' ', '-').replace('#', '')}.log"
        orphaned = end_of_orphans(plan.zookeeper is not None)
        brokers.append(Child(name, broker_command(words), output=output, when_orphaned=orphaned))
    zookeeper = plan.zookeeper() if plan.zookeeper is not None else None
    supervisor = Supervisor(brokers, zookeeper, screen.add_event, screen.add_event, restart=False)
    stop = stop_on_signals(supervisor)
    watching = asyncio.ensure_future(_watch(supervisor, screen))
    starting = asyncio.ensure_future(supervisor.start(plan.probe))
    began = time.monotonic()
    failed = False
    try:
        with screen:
            try:
                await first_of(starting, stop.wait())
                if starting.done():
                    starting.result()
                    elapsed_s = time.monotonic() - began
                    screen.add_event(f"ready after {elapsed_s:.1f} s: --bootstrap-server {bootstrap_of(brokers)}")
                    await first_of(stop.wait(), supervisor.finished.wait())
                failed = supervisor.finished.is_set()
            finally:
                starting.cancel()
                with suppress(StartFailed):
                    await _wait_for(starting)
                await supervisor.stop()
                watching.cancel()
                screen.draw(_members(supervisor))
    except StartFailed as error:
        raise CommandError(f"{error}{_cause(error.child)}") from None
    if failed:
        raise CommandError(f"all brokers have ended; {plan.folder / 'logs'} contains their logs.")
    return 0 if supervisor.clean else 1


async def _wait_for(task: asyncio.Future[Any]) -> None:
    with suppress(asyncio.CancelledError):
        await task


def _cause(child: Child) -> str:
    line = last_error(child.output) if child.output is not None else ""
    return f": {line}" if line else "."


async def _watch(supervisor: Supervisor, screen: _Screen) -> None:
    """Fetch the state of the cluster periodically and show it."""
    loop = asyncio.get_running_loop()
    while True:
        ready = [child for child in supervisor.brokers if child.state is State.READY and child.info.get("listeners")]
        snapshot = await loop.run_in_executor(None, _fetch_snapshot, [bootstrap_of([child]) for child in ready])
        screen.update(_members(supervisor), snapshot)
        await asyncio.sleep(POLL_EVERY_S)


def _fetch_snapshot(addresses: Sequence[str]) -> ClusterSnapshot | None:
    for address in addresses:
        with suppress(CommandError, OSError), WireClient(address, client_id="gregor-cluster") as client:
            return fetch_snapshot(client)
    return None


def _members(supervisor: Supervisor) -> list[Member]:
    found = []
    for child in supervisor.brokers:
        number = int(child.info.get("broker_id", child.name.rpartition(" ")[2].strip("#")))
        found.append(Member(number, child.pid, child.state, bootstrap_of([child]), child.exit_text))
    return found


class _Screen:
    """The output: on a terminal a table that is drawn again, else lines. A context manager."""

    def __init__(self, plan: Plan) -> None:
        self._title = f"gregor cluster in {plan.folder}, ZooKeeper {plan.connect}"
        self._events = plan.events
        self._snapshot: ClusterSnapshot | None = None
        self._live: Any = None

    def __enter__(self) -> _Screen:
        if on_terminal():
            from rich.live import Live

            self._live = Live(auto_refresh=False)
            self._live.__enter__()
        else:
            for line in (self._title, *self._events):
                print_if_open(line)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.__exit__(*exception)
            self._live = None

    def add_event(self, line: str) -> None:
        """Show an event."""
        if self._live is None:
            print_if_open(line)
        else:
            self._events.append(f"{time.strftime('%H:%M:%S')} {line}")
            del self._events[:-_EVENTS_SHOWN]

    def update(self, members: Sequence[Member], snapshot: ClusterSnapshot | None) -> None:
        """Show the present state of the cluster."""
        if self._live is None:
            names = {member.broker_id: f"broker {member.broker_id}" for member in members}
            for line in changes(self._snapshot, snapshot, names):
                print_if_open(line)
        self._snapshot = snapshot
        self.draw(members)

    def draw(self, members: Sequence[Member]) -> None:
        """On a terminal, draw the table and the latest events below it."""
        if self._live is None:
            return
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=self._title, title_justify="left", title_style="bold")
        for column in COLUMNS:
            table.add_column(column.name, justify="right" if column.number else "left")
        for row in rows(members, self._snapshot):
            table.add_row(*(Text(cell) for cell in row))
        lines = [Text(line, style="dim") for line in self._events]
        with suppress(OSError):
            self._live.update(Group(table, Text(summary(self._snapshot)), *lines), refresh=True)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command, which needs no argument."""
    return run(cluster, arguments or ["--brokers=3"])
