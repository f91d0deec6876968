"""gregor.broker.service_manager: datagrams on a socket in the place of systemd's, and the unit in docs/."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path

import pytest

from gregor.broker.service_manager import VARIABLE, ServiceManager
from tests.support.commands import RunningCommand
from tests.support.processes import ROOT

UNIT = ROOT / "docs" / "gregor.service"


class Systemd:
    """Receives what a service sends."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(60)
        self._socket.bind("\0" + address[1:] if address[0] == "@" else address)

    def next(self) -> list[str]:
        """Return the lines of the next message."""
        return self._socket.recv(65536).decode().split("\n")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    abstract = f"@gregor-test-{os.getpid()}-{time.monotonic_ns()}"
    found = Systemd(abstract if request.param == "abstract" else str(tmp_path / "notify"))
    yield found
    found.close()


def test_messages_are_those_of_sd_notify(systemd: Systemd) -> None:
    environ = {VARIABLE: systemd.address, "OTHER": "1"}
    manager = ServiceManager(environ)
    assert environ == {"OTHER": "1"}  # no child sends messages in the name of the service
    manager.status("starting")
    manager.ready("broker 1\nMAINPID=1")
    manager.stopping()
    assert systemd.next() == ["STATUS=starting"]
    assert systemd.next() == ["READY=1", "STATUS=broker 1 MAINPID=1"]
    assert systemd.next() == ["STOPPING=1", "STATUS=stopping"]


def test_without_systemd_nothing_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({}).ready("broker 1")
    assert not caplog.records


def test_socket_that_is_gone_and_unusable_address_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ServiceManager({VARIABLE: str(tmp_path / "gone")}).ready("broker 1")
        ServiceManager({VARIABLE: "vsock:2:1"}).ready("broker 1")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "gone: systemd is not informed: No such file or directory" in caplog.messages[0]
    assert "NOTIFY_SOCKET=vsock:2:1: must be an absolute path or begin with @" in caplog.messages[1]


@pytest.mark.slow
def test_broker_reports_its_start_and_its_stop(tmp_path: Path) -> None:
    systemd = Systemd(str(tmp_path / "notify"))
    settings = ["--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", f"log.dirs={tmp_path / 'data'}"]
    with RunningCommand(tmp_path, "start", *settings, environment={VARIABLE: systemd.address}) as running:
        assert systemd.next() == ["STATUS=starting"]
        ready, status = systemd.next()
        assert ready == "READY=1"
        assert status.startswith("STATUS=broker ") and " serves on PLAINTEXT://127.0.0.1:" in status
        port = int(status.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), 10).close()
        assert running.stop() == 0
        assert systemd.next() == ["STOPPING=1", "STATUS=stopping"]
    systemd.close()


def test_unit_has_the_settings_that_the_broker_relies_on() -> None:
    unit = RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    assert service["Type"] == "notify"
    # The session watcher of a killed broker must not be killed with it, nor be waited for.
    assert service["KillMode"] == "process"
    assert service["ExecReload"].startswith("/bin/kill -HUP")


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """With the program of this test in the place of /opt/gregor/bin/gregor. Machines without systemd check only that
    the unit names a program."""
    text = UNIT.read_text()
    assert "ExecStart=/opt/gregor/bin/gregor start" in text
    copied = tmp_path / UNIT.name
    copied.write_text(text.replace("/opt/gregor/bin/gregor", sys.executable))
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        done = subprocess.run([analyze, "verify", str(copied)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
