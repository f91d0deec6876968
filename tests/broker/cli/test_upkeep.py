"""`gregor compact`, `retention` and `clients` without a broker, and with one that sends prepared answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gregor.broker import __main__ as gregor
from gregor.broker.admin_socket.address import listen

Answers = list[dict[str, Any]]


@pytest.fixture
def answering(tmp_path: Path) -> Callable[[Answers], list[Any]]:
    """Send these answers to one order in `tmp_path`; the returned list receives the order."""

    def answer(answers: Answers) -> list[Any]:
        orders: list[Any] = []
        listening = listen(str(tmp_path))

        def serve() -> None:
            connected, _ = listening.accept()
            with listening, connected, connected.makefile("rwb") as stream:
                orders.append(json.loads(stream.readline()))
                for one in answers:
                    stream.write(json.dumps(one).encode() + b"\n")

        threading.Thread(target=serve, daemon=True).start()
        return orders

    return answer


@pytest.mark.parametrize("command", ["compact", "retention"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--partition", "0"], "Name the topic with --topic"),
        (["--explain", "--partition", "0"], "--partition needs --topic"),
        (["--topic", "t", "--data-dir", "a", "--config", "b"], "not both"),
        (["--topic", "t", "--config", "missing.properties"], "cannot read missing.properties"),
        (["--topic", "t", "--data-dir", "missing"], "no broker answers in the data folder missing: No such file"),
    ],
)
def test_wrong_options_are_refused_before_the_order_is_sent(
    command: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gregor.main([command, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_no_roll_contradicts_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main(["compact", "--topic", "t", "--explain", "--no-roll"]) == 1
    assert "--no-roll and --explain contradict each other" in capsys.readouterr().err


def test_compact(answering: Callable[[Answers], list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = {"bytes_before": 2_500_000, "bytes_after": 1500, "records_before": 9, "records_after": 2}
    orders = answering(
        [
            {"topic": "t", "partition": 0, "done": True, **done, "cleaned_offset": 12, "reason": ""},
            {"topic": "t", "partition": 1, "done": False, "reason": "nothing to compact: it is empty"},
            {"end": True},
        ]
    )
    assert gregor.main(["compact", "--topic", "t", "--no-roll", "--data-dir", str(tmp_path)]) == 0
    assert orders == [{"command": "compact", "topic": "t", "partition": None, "explain": False, "roll": False}]
    assert capsys.readouterr().out == (
        "t-0: compacted up to offset 12, from 2.5 MB to 1.5 KB; 2 of 9 records remain\n"
        "t-1: nothing to compact: it is empty\n"
    )


def test_failed_partition_is_shown_with_its_reason(
    answering: Callable[[Answers], list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answering([{"topic": "t", "partition": 0, "done": False, "reason": "wrong checksum at offset 3"}, {"end": True}])
    assert gregor.main(["compact", "--topic", "t", "--data-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "t-0: wrong checksum at offset 3\n"


def test_data_folder_is_found_in_the_brokers_settings(
    answering: Callable[[Answers], list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(f"log.dirs={tmp_path},{tmp_path}/other\n")
    answering(
        [{"topic": "t", "partition": 0, "when": "never", "why": "it is so", "size_bytes": 7, "segments": 1}, {"end": 1}]
    )
    assert gregor.main(["retention", "--explain", "--config", str(settings)]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["TOPIC", "PARTITION", "SIZE", "SEGMENTS", "NEXT-REMOVAL", "WHY"]
    assert line.split(maxsplit=6) == ["t", "0", "7", "B", "1", "never", "it is so"]


def test_retention(
    answering: Callable[[Answers], list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    removed = {"removed_segments": 3, "removed_bytes": 1500, "log_start_offset": 42}
    orders = answering(
        [
            {"topic": "t", "partition": 0, "done": True, **removed, "reason": ""},
            {"topic": "t", "partition": 1, "done": True, "removed_segments": 0, "reason": ""},
            {"end": True},
        ]
    )
    assert gregor.main(["retention", "--topic", "t", "--data-dir", str(tmp_path)]) == 0
    assert orders[0]["command"] == "retention"
    assert capsys.readouterr().out == (
        "t-0: removed 3 segments, 1.5 KB; the log now starts at offset 42\nt-1: no segment is due for removal\n"
    )


def test_clients(answering: Callable[[Answers], list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def position(client_id: str, topic: str, offset: int, lag_s: float | None = None) -> dict[str, Any]:
        lag = 100 - offset
        return {"client_id": client_id, "topic": topic, "partition": 0, "offset": offset, "lag": lag, "lag_s": lag_s}

    of_earlier_broker = position("beam", "t", 30)
    del of_earlier_broker["lag_s"]
    shown = [position("spark", "t", 40, 1.5), position("flink", "t", 50), of_earlier_broker]
    orders = answering([*shown, position("spark", "other", 60), {"end": True}])
    assert gregor.main(["clients", "--topic", "t", "--data-dir", str(tmp_path)]) == 0
    assert orders == [{"command": "clients"}]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["CLIENT-ID", "TOPIC", "PARTITION", "FETCH-OFFSET", "LAG", "LAG-SECONDS"],
        ["beam", "t", "0", "30", "70", "-"],
        ["flink", "t", "0", "50", "50", "-"],
        ["spark", "t", "0", "40", "60", "1.500"],
    ]


def test_clients_needs_no_flag(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert gregor.main(["clients"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("gregor clients: no broker answers in the data folder ./gregor-data: ")
    assert captured.out == ""


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([{"error": "there is no such topic"}], "there is no such topic."),
        ([], "closed the connection before its last answer"),
    ],
)
def test_errors_of_the_broker(
    answers: Answers,
    message: str,
    answering: Callable[[Answers], list[Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering(answers)
    assert gregor.main(["retention", "--topic", "t", "--data-dir", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err
