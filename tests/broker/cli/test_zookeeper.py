"""`gregor zookeeper`: the command that starts the server, the errors where it cannot start, and the real server."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.cli import zookeeper
from gregor.broker.cli.zookeeper import DEFAULTS, NotStarted, config_file_of, make_parser, settings_of
from gregor.broker.launch import zookeeper_server
from gregor.broker.launch.local_zookeeper import hold
from gregor.config.properties import load_properties
from tests.support.processes import ROOT, clean_environment, free_port
from tests.support.zookeeper import ZooKeeperProcess


def settings(*arguments: str) -> dict[str, str]:
    return settings_of(make_parser().parse_args(arguments))


def test_the_file_that_comes_along_holds_the_defaults() -> None:
    file = ROOT / "config" / "zookeeper.properties"
    assert settings() == settings(str(file)) == load_properties(str(file)) == DEFAULTS


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    stock = tmp_path / "zookeeper.properties"
    stock.write_text("dataDir=/tmp/zookeeper\nclientPort=2181\nmaxClientCnxns=0\nadmin.enableServer=false\n")
    found = settings(str(stock), "--data-dir", str(tmp_path / "data"), "--client-port", "2182")
    assert found == {
        "dataDir": str(tmp_path / "data"),
        "clientPort": "2182",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
    }
    assert "clientPortAddress" not in settings(str(stock))
    assert settings("--bind", "0.0.0.0")["clientPortAddress"] == "0.0.0.0"


def test_a_file_alone_is_used_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "zoo.properties"
    file.write_text(f"dataDir={tmp_path}/data\nclientPort=2181\n")
    given = make_parser().parse_args([str(file)])
    assert config_file_of(given, settings_of(given)) == file
    given = make_parser().parse_args([str(file), "--client-port", "2182"])
    made = config_file_of(given, settings_of(given))
    assert made == tmp_path / "data" / "zoo.cfg"
    assert load_properties(str(made)) == {"dataDir": f"{tmp_path}/data", "clientPort": "2182"}


def test_blanks_around_a_value_are_no_part_of_it(tmp_path: Path) -> None:
    """Java keeps them at the end of a line, and ZooKeeper drops them."""
    file = tmp_path / "zoo.properties"
    file.write_text(f"dataDir={tmp_path}/zk \nclientPort=2182\t\nclientPortAddress= \n")
    assert settings(str(file)) == {"dataDir": f"{tmp_path}/zk", "clientPort": "2182", "clientPortAddress": ""}
    assert settings(str(file), "--data-dir", f"{tmp_path}/other ")["dataDir"] == f"{tmp_path}/other"


def test_others_cannot_read_the_passwords_in_the_file_of_the_server(tmp_path: Path) -> None:
    file, made = tmp_path / "zoo.properties", tmp_path / "data" / "zoo.cfg"
    file.write_text(
        f"dataDir={tmp_path}/data\nclientPort=2181\nssl.keyStore.password=a\\\\b\u00e4\n", encoding="latin-1"
    )
    made.parent.mkdir()
    made.write_text("# of an earlier release, for all to read\n")
    given = make_parser().parse_args([str(file), "--client-port", "2182"])
    assert config_file_of(given, settings_of(given)) == made
    assert made.stat().st_mode & 0o777 == 0o600
    assert load_properties(str(made))["ssl.keyStore.password"] == "a\\b\u00e4"
    assert made.read_bytes().isascii()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("clientPort=2181\n", "does not set dataDir"),
        ("dataDir=x\n", "does not set clientPort"),
        (None, "cannot be read"),
    ],
)
def test_files_that_make_no_server(tmp_path: Path, lines: str | None, said: str) -> None:
    file = tmp_path / "zoo.cfg"
    if lines is not None:
        file.write_text(lines)
    with pytest.raises(NotStarted, match=said):
        settings(str(file))


def test_port_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = ["--client-port", str(port), "--bind", "127.0.0.1", "--data-dir", str(tmp_path / "data")]
        assert zookeeper.main(arguments) == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_missing_option_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--client-port", str(free_port()), "--data-dir", str(tmp_path)]
    monkeypatch.setattr(zookeeper_server.shutil, "which", lambda *_, **__: None)
    assert zookeeper.main(arguments) == 1
    assert "needs Java" in capsys.readouterr().err
    monkeypatch.setattr(zookeeper_server.shutil, "which", lambda *_, **__: "/java")
    monkeypatch.setattr(zookeeper_server, "find_spec", lambda _: None)
    assert zookeeper.main(arguments) == 1
    assert "pip install 'gregor[spark]'" in capsys.readouterr().err


def test_two_servers_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = hold(tmp_path / "data")
    arguments = ["--client-port", str(free_port()), "--data-dir", str(tmp_path / "data")]
    assert zookeeper.main(arguments) == 1
    assert "cannot be used: a ZooKeeper that runs works on this folder" in capsys.readouterr().err
    assert not (tmp_path / "data" / "zoo.cfg").exists()
    lock.release()


@pytest.mark.parametrize("host", ["192.0.2.1", "no.host.invalid"])
def test_an_address_that_is_not_of_this_machine(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(name: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        """Resolve names as a name server would; a real one is not queried, as it may be slow or know any name."""
        if name != "192.0.2.1":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(NotStarted, match=f"cannot listen on {host}:2181: .*; {host} is not an address of this machine"):
        zookeeper.check_ports({"clientPort": "2181", "clientPortAddress": host})


@pytest.mark.parametrize("host", ["", "localhost"])
def test_port_in_use_on_one_of_several_addresses_is_refused(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NotStarted, match="another process, perhaps a ZooKeeper, uses the port"):
            zookeeper.check_ports({"clientPort": str(port), "clientPortAddress": host})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--client-port", "70000"], "'70000' is not a port; give a number from 1 to 65535"),
        (["--client-port", "x"], "'x' is not a port"),
        (["--heap-mb", "0"], "'0' is not a size in megabytes; give 32 or more"),
        (["--heap-mb", "-1"], "expected one argument|'-1' is not a size"),
    ],
)
def test_bad_arguments(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert zookeeper.main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(said, line)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert zookeeper.main(["--help"]) == 0
    assert "zookeeper.connect=localhost:2181" in capsys.readouterr().out


@pytest.mark.jvm
@pytest.mark.slow
def test_the_real_one(tmp_path: Path) -> None:
    server = ZooKeeperProcess(tmp_path)  # not started: only its queries are used
    server.port = free_port()
    command = [sys.executable, "-m", "gregor.broker", "zookeeper", "--client-port", str(server.port)]
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--data-dir", str(tmp_path / "data"), "--heap-mb", "64"],
            cwd=ROOT,
            env=clean_environment(),
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + 120
        while b"Mode: standalone" not in server.ask(b"stat"):
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "out").read_text()
            time.sleep(0.05)
        assert server.ask(b"ruok") == b"imok"
        for word, said in {b"srvr": b"Mode:", b"mntr": b"zk_version", b"dump": b"SessionTracker"}.items():
            assert said in server.ask(word)
        assert b"not in the whitelist" in server.ask(b"crst")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(120) in (0, 143)
    finally:
        process.kill()
        process.wait()
