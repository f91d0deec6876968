"""`gregor zookeeper`: runs the ZooKeeper server whose jars PySpark contains, in the foreground.

This process becomes the server: signals, standard error and the exit code are those of the server.
"""

from __future__ import annotations

import argparse
import errno
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gregor.broker.cli.parser import Parser
from gregor.config.listeners import address_text

if TYPE_CHECKING:
    from gregor.storage.fs.folder_lock import FolderLock

DESCRIPTION = """\
Run a ZooKeeper server in the foreground. Without a file it listens on localhost:2181 and keeps its data in
./gregor-zookeeper. The file has ZooKeeper's format, such as the zookeeper.properties of Apache Kafka; flags have
precedence over it. The command needs Java, and PySpark for the jars (pip install 'gregor[spark]').
"""
EPILOG = """\
examples:
  gregor zookeeper
  gregor zookeeper config/zookeeper.properties
  gregor zookeeper --client-port 2182 --data-dir /var/lib/zookeeper --bind 0.0.0.0
  echo ruok | nc localhost 2181

Then: gregor start --override zookeeper.connect=localhost:2181
"""
DEFAULTS: Mapping[str, str] = {
    "dataDir": "gregor-zookeeper",
    "clientPort": "2181",
    "clientPortAddress": "localhost",
    "maxClientCnxns": "0",
    "autopurge.snapRetainCount": "3",
    "autopurge.purgeInterval": "24",
}
MIN_HEAP_MB = 32
PORTS = ("clientPort", "secureClientPort")


class NotStarted(Exception):
    """The server cannot be started; the text has the cause and the remedy."""


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="gregor zookeeper",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", nargs="?", help="ZooKeeper's settings (dataDir, clientPort, server.1, ...)")
    parser.add_argument("--data-dir", metavar="DIR", help="data folder [gregor-zookeeper]")
    parser.add_argument("--client-port", type=_port, metavar="PORT", help="port for brokers and tools [2181]")
    parser.add_argument(
        "--bind",
        metavar="HOST",
        help="address of the client port [localhost]; on others, such as 0.0.0.0, everyone who reaches it may change"
        " all nodes, unless FILE and SERVER_JVMFLAGS set users and the brokers zookeeper.set.acl=true",
    )
    parser.add_argument("--heap-mb", type=_megabytes, default=512, metavar="MB", help="memory of the server [512]")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port; give a number from 1 to 65535")
    return int(text)


def _megabytes(text: str) -> int:
    if not text.isdecimal() or int(text) < MIN_HEAP_MB:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size in megabytes; give {MIN_HEAP_MB} or more")
    return int(text)


def settings_of(given: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the server; raise NotStarted if the file is unreadable or incomplete."""
    from gregor.config.properties import PropertiesError, load_properties

    settings = dict(DEFAULTS)
    if given.file is not None:
        try:
            settings = load_properties(given.file)
        except OSError as error:
            raise NotStarted(f"{given.file} cannot be read: {error.strerror}") from None
        except PropertiesError as error:
            raise NotStarted(f"{given.file}: {error}") from None
    flags = {"dataDir": given.data_dir, "clientPort": given.client_port, "clientPortAddress": given.bind}
    settings.update({key: str(value) for key, value in flags.items() if value is not None})
    settings = {key: value.strip() for key, value in settings.items()}  # as the server reads them
    if not settings.get("dataDir"):
        raise NotStarted(f"{given.file} does not set dataDir; add it, or give --data-dir DIR")
    if not any(settings.get(port) for port in PORTS):
        raise NotStarted(f"{given.file} does not set clientPort; add it, or give --client-port PORT")
    return settings


def hold_folder(folder: str) -> FolderLock:
    """Lock the folder against other servers; the server inherits the lock. Raise NotStarted if it is in use."""
    from gregor.broker.launch.local_zookeeper import hold

    try:
        return hold(Path(folder))
    except OSError as error:
        raise NotStarted(
            f"the data folder {folder} cannot be used: {error.strerror}; give another --data-dir"
        ) from None


def config_file_of(given: argparse.Namespace, settings: Mapping[str, str]) -> Path:
    """Return the settings file of the server: the given one, or a new one in the data folder, which this user alone can
    read. Raise NotStarted."""
    from gregor.config.properties import escape_value

    folder = Path(settings["dataDir"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if given.file is not None and not (given.data_dir or given.client_port or given.bind):
            return Path(given.file)
        file = folder / "zoo.cfg"
        lines = {**settings, "dataDir": str(folder.absolute())}
        # The passwords of stores may be among the settings.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="ascii") as written:
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o600)  # also where an earlier release made the file
            written.write("".join(f"{escape_value(key)}={escape_value(value)}\n" for key, value in lines.items()))
    except OSError as error:
        raise NotStarted(f"the data folder {folder} cannot be used: {error.strerror}") from None
    return file


def check_ports(settings: Mapping[str, str]) -> None:
    """Raise NotStarted if a port cannot be bound; the server itself would print forty lines."""
    for port in PORTS:
        text = settings.get(port)
        if text and text.isdigit():
            _check_port(settings.get(f"{port}Address", ""), int(text))


def _check_port(host: str, port: int) -> None:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        failed = [error for error in (_trial(family, address) for family, _, _, _, address in found) if error]
        # One of several addresses suffices: the name may have an address of a family that this machine lacks.
        in_use = [error for error in failed if error.errno == errno.EADDRINUSE]
        if in_use or len(failed) == len(found):
            raise (in_use or failed)[0]
    except OSError as error:
        remedy = f"{host} is not an address of this machine; give one with --bind"
        if error.errno == errno.EADDRINUSE:
            remedy = "another process, perhaps a ZooKeeper, uses the port; give another --client-port"
        elif error.errno == errno.EACCES:
            remedy = "give a --client-port above 1023"
        raise NotStarted(f"cannot listen on {address_text(host or '*', port)}: {error.strerror}; {remedy}") from None


def _trial(family: int, address: object) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        return error
    return None


def main(arguments: Sequence[str]) -> int:
    """Replace this process by the server; return an exit code only if that is not possible."""
    try:
        given = make_parser().parse_args(list(arguments))
    except SystemExit as end:  # argparse ends the program for --help and for bad arguments
        return 1 if end.code else 0
    from gregor.broker.launch.zookeeper_server import ZooKeeperMissing, server_command

    try:
        settings = settings_of(given)
        check_ports(settings)
        lock = hold_folder(settings["dataDir"])
    except NotStarted as error:
        print(f"gregor zookeeper: {error}.", file=sys.stderr)
        return 1
    try:
        command = server_command(config_file_of(given, settings), heap_mb=given.heap_mb)
    except (NotStarted, ZooKeeperMissing) as error:
        lock.release()
        print(f"gregor zookeeper: {error}.", file=sys.stderr)
        return 1
    where = [
        f"{settings.get(f'{port}Address') or '*'}:{settings[port]}{' with TLS' if port == 'secureClientPort' else ''}"
        for port in PORTS
        if settings.get(port)
    ]
    print(f"ZooKeeper on {' and '.join(where)}, data in {settings['dataDir']}; Ctrl-C stops it", flush=True)
    os.set_inheritable(lock.descriptor, True)
    os.execv(command[0], command)
