"""Data folders by the Java admin client of Apache Kafka 4.3.1: moving, describing, deleting records."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from tests.support.kafka import java_command
from tests.support.processes import ROOT, BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]


def test_data_folders(tmp_path: pathlib.Path) -> None:
    folders = [str(tmp_path / name) for name in ("a", "b")]
    source = str(ROOT / "tests/compat/java/LogDirs.java")
    with BrokerProcess(tmp_path / "broker", {"log.dirs": ",".join(folders)}) as broker:
        command = java_command(source, broker.bootstrap, *folders)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "absent UnknownTopicOrPartitionException",
        "all 100",
        "beyond OffsetOutOfRangeException",
        "deleted 40",
        "moved true",
        "nowhere LogDirNotFoundException",
        "source true none",
        "target true true false",
    ]
    assert "ERROR" not in broker.log()
