"""A broker on the files that `gregor security init` made."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Self

from gregor.broker.__main__ import main as gregor
from tests.compat.records import until
from tests.support.ports import free_port
from tests.support.processes import BrokerProcess

TOPIC, GROUP, USER = "orders", "billing", "anna"
WAIT_S = 60.0


class InitialisedBroker:
    """The folder of the files, and a broker on it, with a topic that the user may write to and read from; a context
    manager."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "secrets"
        self.port = free_port()
        arguments = ["--host", "localhost", "--port", str(self.port), "--user", USER]
        assert gregor(["security", "init", str(self.files), *arguments]) == 0
        self.broker = BrokerProcess(folder, port=self.port)
        self.broker.file = self.files / "broker.properties"
        self.broker.overrides = {"log.dirs": str(folder / "data"), "group.initial.rebalance.delay.ms": "0"}

    def command(self, name: str, *arguments: str, user: str = "admin") -> int:
        """Run a command of gregor with the file of a user."""
        config = str(self.files / user / "client.properties")
        return gregor([name, "--bootstrap-server", f"localhost:{self.port}", "--command-config", config, *arguments])

    def __enter__(self) -> Self:
        self.broker.start(wait_until_ready=False)
        try:
            until(lambda: self.command("topics", "--list") == 0, "the broker serves", WAIT_S)
            assert self.command("topics", "--create", "--topic", TOPIC) == 0
            for flag, name in (("--topic", TOPIC), ("--group", GROUP)):
                operations = ("--operation", "Read") + (("--operation", "Write") if name == TOPIC else ())
                assert self.command("acls", "--add", "--allow-principal", f"User:{USER}", *operations, flag, name) == 0
        except BaseException:
            self.broker.kill()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            assert self.broker.stop() == 0
        finally:
            self.broker.kill()
            gc.collect()
