"""SIGHUP: the file is read again, its changes act at once, and each key that differs has its line in the log."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from gregor.broker.jobs.background import Background
from gregor.broker.jobs.reload import HangUp, apply, read_again
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.config.properties import load_properties
from tests.broker.harness import Harness
from tests.support.processes import ROOT, BrokerProcess

PATIENCE_S = 120.0


def test_a_broker_takes_over_what_it_can(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "server.properties"
    path.write_text("message.max.bytes=1000\n")
    harness = Harness(tmp_path / "data", message_max_bytes="1000").start()
    config, configs = harness.broker.config, harness.broker.topic_configs
    config.path = str(path)
    config.overrides = {key: text for key, text in config.static_texts.items() if key != "message.max.bytes"}
    harness.create_topic("t")
    log = harness.broker.logs.get("t", 0)
    assert log is not None and log.config.max_message_bytes == 1000
    path.write_text("message.max.bytes=2000\nproducer.id.expiration.ms=7\nnum.partitions=3\n")
    with caplog.at_level("INFO"):
        texts = harness.run(read_again(config, harness.broker.background))
        assert texts is not None
        apply(config, texts, configs.broker_changed, lambda addresses: None)
    assert log.config.max_message_bytes == 2000
    assert log.producers.expiration_ms == 7
    told = [(record.levelname, record.getMessage().removeprefix(f"{path}: ")) for record in caplog.records]
    assert told == [
        ("INFO", "message.max.bytes=2000 is applied"),
        ("WARNING", "num.partitions=3 is ignored: read-only; restart the broker to apply it"),
        ("INFO", "producer.id.expiration.ms=7 is applied"),
    ]
    harness.stop()


def read(config: BrokerConfig) -> dict[str, str] | None:
    async def body() -> dict[str, str] | None:
        background = Background(LoopGate())
        try:
            return await read_again(config, background)
        finally:
            await background.close()

    return asyncio.run(body())


def test_the_file_is_read_on_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = []

    def read_file(path: str | None) -> dict[str, str]:
        readers.append(threading.current_thread())
        return load_properties(path or "")

    monkeypatch.setattr("gregor.config.broker.read_file", read_file)
    path = tmp_path / "server.properties"
    path.write_text("message.max.bytes=2000\n")
    config = BrokerConfig({"message.max.bytes": "5"})
    config.path = str(path)
    assert read(config) == {"message.max.bytes": "2000"}
    assert readers and threading.main_thread() not in readers


def test_settings_that_are_refused_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def never() -> None:
        raise AssertionError("nothing has changed")

    config = BrokerConfig({"message.max.bytes": "5"})
    config.path = str(tmp_path / "server.properties")
    apply(config, {"message.max.bytes": "many"}, never, lambda addresses: None)
    assert config["message.max.bytes"] == 5
    with caplog.at_level("INFO"):
        apply(config, {"message.max.bytes": "5"}, never, lambda addresses: None)
    assert "nothing has changed" in caplog.text


def test_what_cannot_be_read_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig({"message.max.bytes": "5"})
    assert read(config) is None
    assert "started without a file" in caplog.text
    path = tmp_path / "server.properties"
    config.path = str(path)
    assert read(config) is None
    assert "cannot be read: No such file" in caplog.text
    path.write_text("a=\\uXY\n")
    assert read(config) is None
    assert "malformed" in caplog.text
    path.unlink()
    os.mkfifo(path)
    assert read(config) is None
    assert "not a regular file" in caplog.text
    assert config["message.max.bytes"] == 5


@pytest.mark.slow
def test_the_signal(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("log.retention.ms=5000\n")
    broker = BrokerProcess(tmp_path)
    broker.file = path
    with broker:
        path.write_text("log.retention.ms=6000\nlisteners=PLAINTEXT://localhost:1\n")
        os.kill(broker.pid, signal.SIGHUP)
        ignored = "listeners=PLAINTEXT://localhost:1 is ignored: the command line sets it and has precedence"
        deadline = time.monotonic() + PATIENCE_S
        while not all(text in broker.log() for text in ("log.retention.ms=6000 is applied", ignored)):
            assert time.monotonic() < deadline, broker.log()
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("at_the_start", "now", "done"), [(False, False, "reload"), (True, True, "reload"), (True, False, "stop")]
)
def test_a_closed_terminal_ends_the_broker(
    monkeypatch: pytest.MonkeyPatch, at_the_start: bool, now: bool, done: str
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("os.isatty", lambda descriptor: at_the_start)
    hang_up = HangUp(lambda: seen.append("stop"), lambda: seen.append("reload"))
    monkeypatch.setattr("os.isatty", lambda descriptor: now)
    hang_up()
    assert seen == [done]


@pytest.mark.slow
def test_a_terminal_that_is_closed(tmp_path: Path) -> None:
    """The real thing: the broker leads a session on a terminal, whose other end goes away."""
    broker = BrokerProcess(tmp_path)
    terminal, inner = pty.openpty()
    settings = [f"--override={key}={value}" for key, value in broker.overrides.items()]
    with broker.output.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "gregor.broker", "start", *settings],
            cwd=ROOT,
            stdin=inner,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    os.close(inner)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while ", listening on " not in broker.log():
            assert time.monotonic() < deadline, broker.log()
            time.sleep(0.01)
    finally:
        os.close(terminal)
    assert process.wait(PATIENCE_S) == 0
    assert broker.log().endswith("stopped\n")
