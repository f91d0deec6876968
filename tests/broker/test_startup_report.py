"""gregor.broker.startup_report: version and commit from a checkout, a further work tree, and a wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.startup_report import BUILD_FILE, ServerInfo, program_line, started_lines
from gregor.config.broker import BrokerConfig
from tests.support.processes import ROOT, BrokerProcess

PYTHON = ".".join(map(str, sys.version_info[:3]))
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def checkout(root: Path, head: str) -> Path:
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(f"{head}\n")
    (root / "pyproject.toml").write_text('[project]\nname = "gregor"\nversion = "1.2.3"\n')
    return root


def line(commit: str, version: str = "1.2.3") -> str:
    return f"gregor {version}, commit {commit}, {sys.implementation.name} {PYTHON} on {sys.platform}"


def test_the_commit_of_a_checkout_is_the_one_that_git_names() -> None:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    assert f"commit {done.stdout[:12]}," in program_line()


def test_a_head_without_branch_names_its_commit(tmp_path: Path) -> None:
    assert program_line(str(checkout(tmp_path, COMMIT))) == line(COMMIT[:12])


def test_a_branch_is_followed_to_its_commit(tmp_path: Path) -> None:
    root = checkout(tmp_path, "ref: refs/heads/main")
    (root / ".git" / "refs" / "heads").mkdir(parents=True)
    (root / ".git" / "refs" / "heads" / "main").write_text(f"{COMMIT}\n")
    assert program_line(str(root)) == line(COMMIT[:12])


def test_a_packed_branch_is_found(tmp_path: Path) -> None:
    root = checkout(tmp_path, "ref: refs/heads/main")
    (root / ".git" / "packed-refs").write_text(
        f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{COMMIT} refs/heads/main\n"
    )
    assert program_line(str(root)) == line(COMMIT[:12])


def test_a_further_work_tree_has_its_own_head_and_the_branches_of_the_first(tmp_path: Path) -> None:
    first = checkout(tmp_path / "first", "ref: refs/heads/main")
    (first / ".git" / "refs" / "heads").mkdir(parents=True)
    (first / ".git" / "refs" / "heads" / "topic").write_text(f"{COMMIT}\n")
    git = first / ".git" / "worktrees" / "second"
    git.mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/topic\n")
    (git / "commondir").write_text("../..\n")
    second = tmp_path / "second"
    second.mkdir()
    (second / ".git").write_text(f"gitdir: {git}\n")
    (second / "pyproject.toml").write_text('version = "1.2.3"\n')
    assert program_line(str(second)) == line(COMMIT[:12])


def test_a_branch_without_commits_is_unknown(tmp_path: Path) -> None:
    assert program_line(str(checkout(tmp_path, "ref: refs/heads/main"))) == line("unknown")


def test_a_wheel_has_recorded_what_it_was_built_from(tmp_path: Path) -> None:
    (tmp_path / BUILD_FILE).write_text("4.5.6\n0123456789ab\n")
    assert program_line(str(tmp_path)) == line("0123456789ab", "4.5.6")


def test_an_unknown_origin_is_said_to_be_unknown(tmp_path: Path) -> None:
    assert program_line(str(tmp_path)) == line("unknown", "unknown")


def test_a_broker_of_a_cluster_names_its_zookeeper() -> None:
    info = ServerInfo(7, "a-cluster", [("PLAINTEXT", "localhost", 9092)], ["/data"])
    config = BrokerConfig({"zookeeper.connect": "zk1:2181,zk2:2181/kafka"})
    replicas: Any = SimpleNamespace(partitions={})
    lines = list(started_lines(info, config, replicas, in_cluster=True, elapsed_s=1.234))
    assert lines[0] == "broker 7 of cluster a-cluster started in 1.23 s, listening on PLAINTEXT://localhost:9092"
    assert "metadata store: ZooKeeper, zookeeper.connect=zk1:2181,zk2:2181/kafka" in lines


def test_the_log_of_a_start_names_the_parts_of_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        log = broker.log()
    folder = os.path.abspath(broker.overrides["log.dirs"])
    assert f"{program_line()}\n" in log
    assert re.search(r"broker 0 of cluster \S{22} started in \d+\.\d\d s, listening on PLAINTEXT://", log)
    assert f"data folders (log.dirs): {folder}, 0 partitions\n" in log
    assert f"metadata store: embedded, {folder}/" in log
    assert (
        "coordinators: consumer groups, for 0 of 50 partitions of __consumer_offsets; transactions, for 0 of 50" in log
    )
