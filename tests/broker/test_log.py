"""gregor.broker.log: lines as text and as JSON; the session watcher logs in the form of its broker."""

from __future__ import annotations

import json
import logging
import socket
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gregor.broker import log
from gregor.broker.session_watcher import closing
from gregor.broker.session_watcher.closing import end_session
from gregor.broker.session_watcher.messages import encode_broker, encode_session
from gregor.broker.session_watcher.session_end import Session
from tests.support.commands import RunningCommand


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def line_of(formatter: logging.Formatter, message: str, *values: object, **fields: Any) -> dict[str, Any]:
    record = logging.LogRecord("gregor.part", fields.pop("level", logging.INFO), "", 0, message, values, **fields)
    text = formatter.format(record)
    assert "\n" not in text
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_line_of_json_has_its_fields_in_utc() -> None:
    before = time.time()
    line = line_of(log.JsonFormatter("broker 7", lambda: 7), "topic %s: %d", 'a"\n\u2028', 3, exc_info=None)
    when = datetime.strptime(line.pop("time"), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()
    assert before - 0.001 <= when <= time.time()
    assert line == {
        "level": "INFO",
        "logger": "gregor.part",
        "message": 'topic a"\n\u2028: 3',
        "broker": 7,
        "process": "broker 7",
    }


def test_unknown_broker_and_missing_label_are_left_out() -> None:
    line = line_of(log.JsonFormatter("", lambda: -1), "starting", exc_info=None)
    assert set(line) == {"time", "level", "logger", "message"}


def test_half_a_surrogate_pair_is_a_line_too() -> None:
    assert line_of(log.JsonFormatter(), "client %s", "\ud800", exc_info=None)["message"] == "client \ud800"


def test_error_has_its_traceback_in_one_string() -> None:
    try:
        raise ValueError("first") from OSError("cause")
    except ValueError:
        line = line_of(log.JsonFormatter(), "failed", level=logging.ERROR, exc_info=sys.exc_info())
    assert line["message"] == "failed"
    assert line["error"].startswith("OSError: cause\n") or "OSError: cause" in line["error"]
    assert line["error"].endswith("ValueError: first")
    assert "Traceback (most recent call last):\n" in line["error"]


def test_levels_have_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(log.TRACE, form=log.JSON)
    logging.getLogger("gregor.part").log(log.TRACE, "all")
    assert json.loads(capsys.readouterr().err)["level"] == "TRACE"


def test_text_has_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(label="50%")
    log.logger.warning("full")
    assert capsys.readouterr().err.endswith("] WARNING [50%] full\n")


def test_session_watcher_logs_in_the_form_of_its_broker(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "LONGEST_S", 0.05)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    session = Session(5, b"\x01", 50, (("127.0.0.1", port),))
    settings = {"zookeeper.connect": "zk:2181", log.FORMAT_KEY: log.JSON, "broker.id": "3"}
    assert end_session(encode_broker("The broker (pid 7)", "broker 3", settings) + encode_session(session)) == 1
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["broker"], line["process"]) == ("ERROR", 3, "broker 3")
    assert line["message"].startswith("The broker (pid 7) has ended without closing its ZooKeeper session")


@pytest.mark.slow
def test_every_line_of_a_broker_is_an_object(tmp_path: Path) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data"), "gregor.log.format": "json"}
    words = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
    with RunningCommand(tmp_path, "start", *words) as running:
        running.until("coordinators: ")
        assert running.stop() == 0
        lines = [json.loads(line) for line in running.said.splitlines()]
    assert lines[-1]["message"] == "stopped"
    assert {line["broker"] for line in lines} == {0}
