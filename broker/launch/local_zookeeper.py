"""A ZooKeeper for the brokers of one machine: its configuration, its folder's lock, and whether it answers."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gregor.config.properties import escape_value
from gregor.storage.fs.folder_lock import FolderInUse, FolderLock

if TYPE_CHECKING:
    from gregor.broker.session_watcher.session_end import Wrap

DATA = "data"
_ANSWER_S = 2.0
_NOT_ASCII = re.compile(r"(?:[^ -~]|\?)+")


def write_config(folder: Path, port: int) -> Path:
    """Make the folder and write its `zoo.cfg`: loopback only, data beside it, old snapshots removed."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = {
        "dataDir": folder.absolute() / DATA,
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "tickTime": 2000,
        "maxClientCnxns": 0,
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 24,
    }
    file = folder / "zoo.cfg"
    file.write_text("".join(f"{key}={escape_value(str(value))}\n" for key, value in lines.items()))
    return file


def hold(data_folder: Path) -> FolderLock:
    """Make the folder, and keep other ZooKeepers out of it: they have no lock of their own, and would spoil each
    other's files. The server is to inherit the lock's descriptor. Raises OSError, also if a ZooKeeper runs on it."""
    data_folder.mkdir(parents=True, exist_ok=True)
    try:
        return FolderLock(str(data_folder))
    except FolderInUse:
        raise OSError(errno.EBUSY, "a ZooKeeper that runs works on this folder", str(data_folder)) from None


def command_for(config_file: Path) -> Callable[[int], Sequence[str]]:
    """Return the command for a supervisor.Child. Raises ZooKeeperMissing if there is no Java, or no jars."""
    from gregor.broker.launch.zookeeper_server import server_command

    command = server_command(config_file)
    return lambda descriptor: command


def four_letter_word(
    host: str, port: int, word: bytes, timeout_s: float = _ANSWER_S, wrap: Wrap | None = None
) -> bytes:
    """Send a four-letter word to a ZooKeeper and return the answer. Raises OSError where no server answers.

    `wrap` returns the TLS connection of one to the host of that name.
    """
    connection = socket.create_connection((host, port), timeout=timeout_s)
    try:
        if wrap is not None:
            connection = wrap(connection, host)
        connection.sendall(word)
        with connection.makefile("rb") as answer:
            return answer.read()
    finally:
        connection.close()


def serves(folder: Path, port: int) -> bool:
    """Whether the ZooKeeper of the `zoo.cfg` in this folder serves at this port.

    The server of another cluster may answer there: of two that are started at once for one free port, one fails.
    """
    try:
        answer = four_letter_word("127.0.0.1", port, b"conf")
    except OSError:
        return False
    # The data is in `version-2` below dataDir, which is in the encoding of the server's locale, perhaps with "?".
    found = re.search(r"^dataDir=(.*)/", answer.decode("latin-1"), re.MULTILINE)
    own = os.fsencode(folder.absolute() / DATA).decode("latin-1")
    return found is not None and _NOT_ASCII.sub("?", found[1]) == _NOT_ASCII.sub("?", own)


def is_free(port: int) -> bool:
    """Whether no process listens at this port, on any loopback address."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except OSError as error:
            if family == socket.AF_INET or "in use" in str(error):
                return False
    return True


def free_ports(first: int, count: int, used: Sequence[int] = ()) -> list[int]:
    """Return this many free ports from `first` on but those `used`; any ports if `first` is 0."""
    if first == 0:
        probes = [socket.socket() for _ in range(count)]
        try:
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            return [int(probe.getsockname()[1]) for probe in probes]
        finally:
            for probe in probes:
                probe.close()
    found: list[int] = []
    for port in range(first, 65536):
        if len(found) == count:
            break
        if port not in used and is_free(port):
            found.append(port)
    if len(found) < count:
        raise OSError(f"there are not {count} free ports from {first} on")
    return found
