"""Brokers, a ZooKeeper and copiers on hosts of their own, and rounds of faults under transactions on them.

    python -m tests.compat.transaction_hosts --folder FOLDER --brokers 3 --level 2 --rounds 30 --victims cut

Runs inside of namespaces of its own (tests/cluster/network.py). The exit code is 0 when nothing is amiss.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from kazoo.client import KazooClient

from tests.cluster import network
from tests.cluster.cluster import ask_metadata
from tests.cluster.network import Network
from tests.cluster.security import PLAINTEXT, Security
from tests.cluster.servers import KINDS, Broker, ZooKeeper
from tests.compat.exactly_once import WAIT_S
from tests.compat.records import until
from tests.compat.transaction_faults import CLUSTER_SETTINGS, COPIERS, NEWER_COPIERS, SINGLE_SETTINGS, play
from tests.compat.transaction_version import NEW, OLD, finalise_new_protocol
from tests.support.processes import ROOT, clean_environment
from tests.support.zookeeper import retry

GREGOR, KAFKA = KINDS
COPIERS_HOST = "copiers"
CLIENT_CUTS = ("copiers",)
CLUSTER_CUTS = (*CLIENT_CUTS, "brokers", "zookeeper", "brokers and zookeeper")
LOG_TAIL_CHARACTERS = 6000


class Hosts:
    """The brokers of `transaction_faults`; a context manager. gregor runs alone without a ZooKeeper."""

    def __init__(self, folder: pathlib.Path, kind: str, count: int) -> None:
        names = [f"broker-{number}" for number in range(count)]
        self._network = Network(["zookeeper", COPIERS_HOST, *names])
        settings: dict[str, object] = {**(CLUSTER_SETTINGS if count > 1 else SINGLE_SETTINGS)}
        self._zookeeper = None if count == 1 and kind == GREGOR else ZooKeeper(self._network, folder)
        self._nodes: KazooClient | None = None
        settings["zookeeper.connect"] = "" if self._zookeeper is None else self._zookeeper.connect
        security = Security(PLAINTEXT, folder, [])
        self._brokers = [Broker(self._network, folder, number, kind, settings, security) for number in range(count)]
        self._folder = folder

    # -- the brokers under test ------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self._brokers)

    @property
    def cuts(self) -> Sequence[str]:
        return CLUSTER_CUTS if len(self._brokers) > 1 else CLIENT_CUTS

    def on_copiers_host(self, command: list[str]) -> list[str]:
        return self._network.on(COPIERS_HOST, *command)

    def kill(self, broker_id: int) -> None:
        self._brokers[broker_id].kill()

    def send(self, broker_id: int, number: signal.Signals) -> None:
        os.killpg(self._brokers[broker_id].pid, number)

    def start(self, broker_id: int) -> None:
        """Return when it answers, and is registered."""
        broker = self._brokers[broker_id]
        if broker.kind == KAFKA:
            # It does not start while its registration of before a crash is there.
            until(lambda: broker_id not in self._registered(), f"the end of the session of {broker.name}", WAIT_S)
        broker.start()
        self._wait_until_ready(broker)

    def cut(self, broker_id: int, peers: str) -> None:
        own = self._brokers[broker_id].name
        for kind in peers.split(" and "):
            others = [one.name for one in self._brokers if one.name != own] if kind == "brokers" else [kind]
            for other in others:
                self._network.cut(own, other)

    def mend(self) -> None:
        self._network.mend_all()

    # -- begin and end ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Hosts:
        if self._zookeeper is not None:
            self._zookeeper.start()
            self._nodes = KazooClient(self._zookeeper.connect, timeout=20, command_retry=retry())
            self._nodes.start(timeout=WAIT_S)
        for broker in self._brokers:
            broker.start()
        for broker in self._brokers:
            self._wait_until_ready(broker)
        return self

    def __exit__(self, *exception: object) -> None:
        for broker in self._brokers:
            broker.kill()
        if self._nodes is not None:
            self._nodes.stop()
            self._nodes.close()
        if self._zookeeper is not None:
            self._zookeeper.kill()
        if exception[0] is not None:
            self._keep()

    def _keep(self) -> None:
        """Show the ends of the brokers' logs, and keep their data, which is on file systems of this run."""
        for broker in self._brokers:
            print(f"--- {broker.name}\n{broker.output.read_text(errors='replace')[-LOG_TAIL_CHARACTERS:]}")
            kept = self._folder / f"data-{broker.number}"
            shutil.copytree(broker.data, kept, ignore=shutil.ignore_patterns("*.sock"))

    def _registered(self) -> set[int]:
        if self._nodes is None:
            return {broker.number for broker in self._brokers}
        if not self._nodes.retry(self._nodes.exists, "/brokers/ids"):
            return set()
        return {int(name) for name in self._nodes.retry(self._nodes.get_children, "/brokers/ids")}

    def _wait_until_ready(self, broker: Broker) -> None:
        def ready() -> bool:
            assert broker.running, f"{broker.name} ended with {broker.exit_code}"
            with contextlib.suppress(OSError):
                return ask_metadata(broker).controller_id >= 0 and broker.number in self._registered()
            return False

        until(ready, f"{broker.name} answers, and is registered", WAIT_S)


def run(folder: pathlib.Path, kind: str, brokers: int, level: int, rounds: int, victims: Sequence[str]) -> str:
    """Play in namespaces of its own; return the output. Raise AssertionError with it if something is amiss."""
    words = ["--folder", str(folder), "--kind", kind, "--brokers", str(brokers)]
    words += ["--level", str(level), "--rounds", str(rounds), "--victims", ",".join(victims)]
    command = network.inside([sys.executable, "-m", "tests.compat.transaction_hosts", *words])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--kind", choices=KINDS, default=GREGOR)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--level", type=int, choices=(OLD, NEW), default=OLD)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--victims", type=lambda text: text.split(","), default=["cut"])
    return parser.parse_args(words)


@contextlib.contextmanager
def hosts(options: argparse.Namespace) -> Iterator[Hosts]:
    options.folder.mkdir(parents=True, exist_ok=True)
    with Hosts(options.folder, options.kind, options.brokers) as found:
        if options.level == NEW and options.brokers > 1:
            finalise_new_protocol(found.bootstrap)
        yield found


def main(options: argparse.Namespace) -> None:
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    # gregor with its own metadata store has the new protocol from the start: the copier of 3.9 uses the old one.
    kinds = NEWER_COPIERS if options.level == NEW and options.brokers > 1 else COPIERS
    with hosts(options) as found:
        folder = options.folder / "loop"
        play(found, folder, options.victims, options.rounds, options.brokers, kinds, options.level)


if __name__ == "__main__":
    main(arguments(sys.argv[1:]))
