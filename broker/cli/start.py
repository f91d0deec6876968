"""`gregor start`: runs a broker in the foreground until SIGTERM or Ctrl-C.

For a fast start this module imports nothing beyond the standard library and gregor's own packages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from gregor.broker.cli.parser import Parser
from gregor.config.listeners import address_text, listener_text

if TYPE_CHECKING:
    from gregor.broker.startup_report import ServerInfo
    from gregor.config.broker import BrokerConfig
    from gregor.config.environment import TopicWish

DESCRIPTION = """\
Run a broker in the foreground. Without a file the defaults apply: listeners=PLAINTEXT://localhost:9092, which only
this machine can reach, and log.dirs=./gregor-data. The keys are those of Apache Kafka. SIGTERM or Ctrl-C stops the
broker cleanly; on SIGHUP it reads the file again.
"""
EXAMPLES = """\
examples:
  gregor start
  gregor start server.properties
  gregor start --override listeners=PLAINTEXT://localhost:19092 --override log.dirs=/var/lib/gregor
  gregor start --brokers 4 --override log.dirs=/var/lib/gregor
  KAFKA_BROKER_ID=1 KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 gregor start --env
"""


_STANDARD_INPUT = 0


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from gregor.broker.cli.version import version_line

        print(version_line())
        parser.exit()


class _Daemon(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.error("-daemon is not supported: brokers run in the foreground; use a service manager or nohup")


def _override(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form KEY=VALUE")
    return key.strip(), value.strip()


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of brokers; give a whole number from 1 on")
    return int(text)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `gregor start`: the options of kafka-server-start.sh, and gregor's own."""
    parser = Parser(
        prog="gregor start",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", nargs="?", metavar="server.properties", help="settings of the broker")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        type=_override,
        metavar="KEY=VALUE",
        help="a setting, with precedence over the file; repeatable",
    )
    parser.add_argument(
        "--env",
        action="store_true",
        help="read settings from KAFKA_* variables as Kafka's container images do, with precedence over the file; "
        "--override has precedence over them",
    )
    parser.add_argument(
        "--brokers",
        type=_count,
        metavar="N",
        help="run a cluster of N brokers, each in a process of its own: the first with the given broker.id and ports, "
        "the others with the next ones, their data in broker-0, broker-1, .. below log.dirs; without "
        "zookeeper.connect, a ZooKeeper is started for them",
    )
    parser.add_argument(
        "--cpu-affinity", action="store_true", help="with --brokers: bind each broker to one processor, in turn"
    )
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log-label", default="", help=argparse.SUPPRESS)
    parser.add_argument("--version", action=_Version, nargs=0, help="show gregor's version")
    parser.add_argument("-daemon", action=_Daemon, nargs=0, help=argparse.SUPPRESS)
    parser.add_argument(
        "--banner",
        action=argparse.BooleanOptionalAction,
        help="once ready, print the addresses of the broker and commands to try (default: on a terminal)",
    )
    return parser


def banner(info: ServerInfo, program: str) -> str:
    """Return the text for a new user of a broker that is ready: addresses, folders, commands to try."""
    listeners = dict.fromkeys(listener_text(*one) for one in info.listeners)
    bootstrap = _bootstrap(info)
    return "\n".join(
        [
            f"gregor is ready: broker {info.broker_id} of cluster {info.cluster_id}",
            f"  listens on  {', '.join(listeners)}",
            f"  data in     {', '.join(os.path.abspath(folder) for folder in info.log_dirs)}",
            "",
            "Try, in another terminal:",
            f"  {program} topics --create --topic greetings{bootstrap}",
            f"  echo hello | {program} console-producer --topic greetings{bootstrap}",
            f"  {program} console-consumer --topic greetings --from-beginning{bootstrap}",
            "",
            "Ctrl-C stops it.",
        ]
    )


def _bootstrap(info: ServerInfo) -> str:
    """Return the flag by which the other commands reach this broker; "" if their default does."""
    _, host, port = next((entry for entry in info.listeners if entry[0] == "PLAINTEXT"), info.listeners[0])
    local = host in ("127.0.0.1", "0.0.0.0", "::", "localhost")  # clients seldom resolve localhost to ::1
    if local and port == 9092:
        return ""
    return f" --bootstrap-server {address_text('localhost' if local else host, port)}"


def program_name() -> str:
    """Return the command by which the user can call this program again from the same folder."""
    called = sys.argv[0]
    if os.path.basename(called) != "gregor":
        return f"{os.path.basename(sys.executable)} -m gregor.broker"
    found = shutil.which("gregor")
    return "gregor" if found and os.path.samefile(found, called) else os.path.relpath(called)


def main(arguments: Sequence[str]) -> int:
    """Load the settings and run the broker; return 1 if it cannot start, 0 after a clean stop."""
    if not os.isatty(_STANDARD_INPUT):
        # Until the handler is there. A terminal that is closed may end the start.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        given = make_parser().parse_args(arguments)
    except SystemExit as end:  # argparse ends the program for --help and for bad arguments
        return end.code if isinstance(end.code, int) else 1

    from gregor.config.definitions import ConfigError

    try:
        config, topics = load_config(given, os.environ)
    except ConfigError as error:
        print(f"gregor start: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"gregor start: cannot read {given.file}: {error.strerror}", file=sys.stderr)
        return 1

    if given.brokers is not None:
        from gregor.broker.cli.start_brokers import run_brokers

        return run_brokers(given, config)
    if given.cpu_affinity:
        print("gregor start: --cpu-affinity needs --brokers; the system schedules a single broker", file=sys.stderr)
        return 1

    try:
        check_no_members(config.log_dirs)
    except ConfigError as error:
        print(f"gregor start: {error}", file=sys.stderr)
        return 1

    from gregor.broker.server import run

    return run(config, _on_ready(given), topics, given.log_label)


def check_no_members(log_dirs: Sequence[str]) -> None:
    """Raise ConfigError if a folder contains the folders of several brokers: `broker-0` has the form of a
    partition's folder."""
    from gregor.config.definitions import ConfigError
    from gregor.config.local_cluster import MEMBER_FOLDER, members_in

    for folder in log_dirs:
        if found := members_in([folder]):
            raise ConfigError(
                "log.dirs",
                folder,
                f"belongs to a local cluster and contains {', '.join(map(MEMBER_FOLDER.format, found))}: start its "
                f"brokers with --brokers {len(found)} (or `gregor cluster`), or name another folder",
            )


def _on_ready(given: argparse.Namespace) -> Callable[[ServerInfo], None] | None:
    if given.ready_fd is not None:
        from dataclasses import asdict

        from gregor.broker.launch.supervisor import announce_ready

        return lambda info: announce_ready(given.ready_fd, asdict(info))
    show = sys.stdout.isatty() if given.banner is None else given.banner
    return (lambda info: print(banner(info, program_name()), flush=True)) if show else None


def load_config(given: argparse.Namespace, environ: Mapping[str, str]) -> tuple[BrokerConfig, list[TopicWish]]:
    """Return the settings, and the topics that the environment requests; raise as BrokerConfig.load does."""
    from gregor.config.broker import BrokerConfig, read_file

    if not given.env:
        config = BrokerConfig.load(given.file, given.override)
        if any(name.startswith("KAFKA_") for name in environ):
            from gregor.config.environment import ignored_variables

            names = ignored_variables(environ)
            if names:
                config.notes.append(f"these variables have no effect without --env: {', '.join(names)}")
        return config, []

    from gregor.config.definitions import ConfigError
    from gregor.config.environment import read_environment

    found = read_environment(environ, read_file(given.file), dict(given.override))
    try:
        config = BrokerConfig.load(given.file, given.override, found.settings)
    except ConfigError as error:
        if error.key in found.settings and error.key not in dict(given.override):
            raise ConfigError(error.key, error.value, f"{error.message} (set by the environment)") from None
        raise
    config.prepend_lines(
        [f"environment: {line}" for line in found.notes], [f"environment: {line}" for line in found.warnings]
    )
    return config, found.topics
