"""Lines of the log about the program that starts, and about the parts of the started broker."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.config.listeners import listener_text
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from gregor.replication.store.embedded import FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gregor.config.broker import BrokerConfig
    from gregor.replication.partition.replica_manager import ReplicaManager

UNKNOWN = "unknown"
BUILD_FILE = "build.txt"
"""Beside the packages in a wheel: its version and commit, a line each (hatch_build.py)."""


@dataclass(slots=True, frozen=True)
class ServerInfo:
    """The identity of a broker that has started. `listeners` are (name, host, port) as bound."""

    broker_id: int
    cluster_id: str
    listeners: list[tuple[str, str, int]]
    log_dirs: list[str]


def program_line(root: str = "") -> str:
    """Return version, commit and Python of the running program. `root` holds the packages; by default the running ones.

    importlib.metadata knows the version as well, but its import costs a start 40 ms.
    """
    root = root or os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    version, commit = _recorded(f"{root}/{BUILD_FILE}") or (_version_of(root), _commit_of(root))
    python = ".".join(map(str, sys.version_info[:3]))
    return f"gregor {version}, commit {commit}, {sys.implementation.name} {python} on {sys.platform}"


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, ValueError):
        return []


def _recorded(path: str) -> tuple[str, str] | None:
    match _lines(path):
        case [version, commit, *_]:
            return version, commit
    return None


def _version_of(root: str) -> str:
    """Return the version that pyproject.toml of a checkout states."""
    for line in _lines(f"{root}/pyproject.toml"):
        key, _, value = line.partition("=")
        if key.strip() == "version":
            return value.strip().strip('"')
    return UNKNOWN


def _commit_of(root: str) -> str:
    """Return the commit of a git checkout. Files are read, as a process of git costs a start some milliseconds."""
    git = f"{root}/.git"
    if link := _lines(git):  # a further work tree: `gitdir: <its folder>`
        git = os.path.join(root, link[0].removeprefix("gitdir:").strip())
    head = "".join(_lines(f"{git}/HEAD")[:1])
    if not head.startswith("ref:"):
        return head[:12] or UNKNOWN
    name = head.removeprefix("ref:").strip()
    common = os.path.join(git, "".join(_lines(f"{git}/commondir")[:1]))
    for folder in (git, common):
        if found := _lines(f"{folder}/{name}"):
            return found[0][:12]
    packed = (line.split() for line in _lines(f"{common}/packed-refs"))
    return next((words[0][:12] for words in packed if words[1:] == [name]), UNKNOWN)


def listeners_text(info: ServerInfo) -> str:
    return ", ".join(listener_text(*one) for one in info.listeners)


def ready_status(info: ServerInfo) -> str:
    """Return the line that a service manager shows about a broker that serves."""
    return f"broker {info.broker_id} of cluster {info.cluster_id} serves on {listeners_text(info)}"


def started_lines(
    info: ServerInfo, config: BrokerConfig, replicas: ReplicaManager, in_cluster: bool, elapsed_s: float
) -> Iterator[str]:
    """Yield the parts of a broker that is ready: listeners, data folders, metadata store, coordinators."""
    listeners = listeners_text(info)
    yield f"broker {info.broker_id} of cluster {info.cluster_id} started in {elapsed_s:.2f} s, listening on {listeners}"
    folders = ", ".join(os.path.abspath(folder) for folder in info.log_dirs)
    yield f"data folders (log.dirs): {folders}, {len(replicas.partitions)} partitions"
    yield f"metadata store: {_store_text(config, info.log_dirs, in_cluster)}"
    group_text = _led_text(replicas, GROUP_METADATA_TOPIC, config["offsets.topic.num.partitions"])
    transaction_text = _led_text(replicas, TRANSACTION_STATE_TOPIC, config["transaction.state.log.num.partitions"])
    yield f"coordinators: consumer groups, {group_text}; transactions, {transaction_text}"


def _led_text(replicas: ReplicaManager, topic: str, count: int) -> str:
    led = sum(partition.topic == topic and partition.is_leader for partition in replicas.partitions.values())
    return f"for {led} of {count} partitions of {topic}"


def _store_text(config: BrokerConfig, log_dirs: Sequence[str], in_cluster: bool) -> str:
    if in_cluster:
        return f"ZooKeeper, zookeeper.connect={config['zookeeper.connect']}"
    folder = next((one for one in log_dirs if os.path.exists(f"{one}/{FILE_NAME}")), log_dirs[0])
    return f"embedded, {os.path.abspath(folder)}/{FILE_NAME}"
