"""The `gregor` command: finding sub-commands, and the modules that a broker's start must not import."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gregor.broker import __main__ as gregor
from tests.support.processes import ROOT, BrokerProcess, clean_environment

# Packages that only other commands or old record formats need.
HEAVY = {
    *("click", "rich", "confluent_kafka", "kazoo", "numpy", "pyspark"),
    *("lz4", "snappy", "cramjam", "zstandard", "gzip"),
}
# Modules that only some settings and rare events need: keys and certificates, other processes, cold pages.
OPTIONAL = {
    *("cryptography", "ctypes", "multiprocessing", "http", "email", "xml", "xmlrpc", "aiohttp", "prometheus_client"),
    *("gregor.broker.authorization.guards", "gregor.broker.authorization.rules", "gregor.broker.net.tls.acceptor"),
    *("gregor.config.security.contexts", "gregor.config.security.stores", "gregor.config.security.sasl"),
    *("gregor.broker.security.identity_provider", "gregor.broker.security.signatures"),
    *("gregor.protocol.sasl.clients", "gregor.protocol.sasl.oauthbearer", "gregor.protocol.sasl.plain"),
}
# Modules that only a broker of a cluster needs.
MEMBERS = {
    "gregor.broker.cluster.member",
    "gregor.replication.partition.replica_fetchers",
    "gregor.broker.handlers.k04_leader_and_isr",
}


def test_bare_prints_usage_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main([]) == 1
    assert capsys.readouterr().out.startswith(gregor.USAGE)


def test_an_interrupt_while_a_command_is_loaded_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gregor.importlib, "import_module", interrupted)
    assert gregor.main(["cluster"]) == 130


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_help_lists_every_command(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main([flag]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in gregor.COMMANDS)


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main(["topcis", "--list"]) == 1
    assert "no command 'topcis'. Did you mean 'topics'?" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main(["--version"]) == 0
    assert re.fullmatch(r"gregor \d+\.\d+\.\d+\n|gregor, not installed\n", capsys.readouterr().out)


def test_error_of_missing_pyspark_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    monkeypatch.setattr(gregor.importlib, "import_module", missing)
    assert gregor.main(["spark", "wordcount"]) == 1
    assert "pip install 'gregor[spark]'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["topics", "groups", "console-producer", "console-consumer"])
def test_a_bare_tool_prints_its_usage_with_examples_and_fails(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main([name]) == 1
    out = capsys.readouterr().out
    assert f"Usage: gregor {name}" in out
    assert f"  gregor {name} --" in out or f"| gregor {name} --" in out


@pytest.mark.parametrize(
    "name", ["start", "cluster", "doctor", "topics", "groups", "console-producer", "console-consumer"]
)
def test_help_of_a_command_succeeds(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main([name, "--help"]) == 0
    assert "xamples:" in capsys.readouterr().out


@pytest.mark.slow
def test_start_imports_nothing_heavy() -> None:
    """A broker starts in a fraction of a second and idles in little memory because of this."""
    script = (
        "import sys, gregor.broker.__main__, gregor.broker.cli.start, gregor.broker.server, gregor.broker.registry\n"
        "gregor.broker.registry.load_handlers(in_cluster=False)\n"
        f"print(*sorted(set(sys.modules) & {HEAVY | MEMBERS!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=clean_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.slow
def test_a_broker_without_optional_settings_has_no_module_of_theirs(tmp_path: Path) -> None:
    """The whole life of a broker, from its start to its end, and not only what its modules import."""
    assert not [name for name in OPTIONAL if name.startswith("gregor.") and find_spec(name) is None], "a stale name"
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('loaded:', *sorted(sys.modules)))\n"
        "from gregor.broker.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )

    class Listing(BrokerProcess):
        def command(self) -> list[str]:
            return [sys.executable, "-c", script, *super().command()[3:]]

    with Listing(tmp_path) as broker:
        pass
    loaded = set(broker.log().rpartition("loaded:")[2].split())
    assert "gregor.broker.server" in loaded, broker.log()
    assert loaded & (HEAVY | MEMBERS | OPTIONAL) == set()
