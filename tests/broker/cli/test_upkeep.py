"""`gregor compact` and `gregor retention` without a broker, and with one that only says what it is told to say."""

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
def told(tmp_path: Path) -> Callable[[Answers], list[Any]]:
    """Answers one order in `tmp_path` with these; the order itself is in what it returns."""

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
        (["--explain", "--partition", "0"], "--partition goes with --topic"),
        (["--topic", "t", "--data-dir", "a", "--config", "b"], "not both"),
        (["--topic", "t", "--config", "missing.properties"], "cannot read missing.properties"),
        (["--topic", "t", "--data-dir", "missing"], "no broker answers in missing: No such file"),
    ],
)
def test_what_is_refused_before_anybody_is_asked(
    command: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gregor.main([command, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_no_roll_is_about_doing(capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main(["compact", "--topic", "t", "--explain", "--no-roll"]) == 1
    assert "--no-roll does not go with --explain" in capsys.readouterr().err


def test_compact(told: Callable[[Answers], list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = {"bytes_before": 2_500_000, "bytes_after": 1500, "records_before": 9, "records_after": 2}
    orders = told(
        [
            {"topic": "t", "partition": 0, "done": True, **done, "cleaned_offset": 12, "reason": ""},
            {"topic": "t", "partition": 1, "done": False, "reason": "nothing to compact: it is empty"},
            {"end": True},
        ]
    )
    assert gregor.main(["compact", "--topic", "t", "--no-roll", "--data-dir", str(tmp_path)]) == 0
    assert orders == [{"command": "compact", "topic": "t", "partition": None, "explain": False, "roll": False}]
    assert capsys.readouterr().out == (
        "t-0: 2.5 MB became 1.5 KB, 2 of 9 records stay; compacted up to offset 12\n"
        "t-1: nothing to compact: it is empty\n"
    )


def test_a_partition_that_failed(
    told: Callable[[Answers], list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told([{"topic": "t", "partition": 0, "done": False, "reason": "wrong checksum at offset 3"}, {"end": True}])
    assert gregor.main(["compact", "--topic", "t", "--data-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "t-0: wrong checksum at offset 3\n"


def test_the_folder_comes_from_the_brokers_settings(
    told: Callable[[Answers], list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(f"log.dirs={tmp_path},{tmp_path}/other\n")
    told(
        [{"topic": "t", "partition": 0, "when": "never", "why": "it is so", "size_bytes": 7, "segments": 1}, {"end": 1}]
    )
    assert gregor.main(["retention", "--explain", "--config", str(settings)]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["TOPIC", "PARTITION", "SIZE", "SEGMENTS", "NEXT-REMOVAL", "WHY"]
    assert line.split(maxsplit=6) == ["t", "0", "7", "B", "1", "never", "it is so"]


@pytest.mark.parametrize(
    ("answers", "message"),
    [([{"error": "there is no such topic"}], "there is no such topic."), ([], "ended before it was done")],
)
def test_errors_of_the_broker(
    answers: Answers,
    message: str,
    told: Callable[[Answers], list[Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told(answers)
    assert gregor.main(["retention", "--topic", "t", "--data-dir", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err
