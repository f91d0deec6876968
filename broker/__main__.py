"""The `gregor` command: finds the sub-command and imports only the modules that it needs.

`gregor start` must be serving within a fraction of a second and idle in little memory, so no module of the other
commands (click, rich, the client library) may be imported by it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

INTERRUPTED = 130
"""The exit status that a shell reports for a process that SIGINT ended."""
USAGE = "Usage: gregor COMMAND [OPTIONS]..."

# Name -> module with `main(arguments) -> exit code`, and the line that `gregor --help` prints.
COMMANDS = {
    "start": ("gregor.broker.cli.start", "Run a broker in the foreground."),
    "cluster": ("gregor.broker.cli.cluster", "Run a ZooKeeper and some brokers on this machine, and show their state."),
    "zookeeper": ("gregor.broker.cli.zookeeper", "Run a ZooKeeper server in the foreground."),
    "topics": ("gregor.broker.cli.topics", "Create, list, describe, alter and delete topics."),
    "console-producer": ("gregor.broker.cli.console_producer", "Send the lines of standard input to a topic."),
    "console-consumer": ("gregor.broker.cli.console_consumer", "Print the records of topics."),
    "groups": ("gregor.broker.cli.groups.command", "List, describe and delete consumer groups; reset their offsets."),
    "clients": ("gregor.broker.cli.clients", "Show the consumers that fetch from a broker, and their lag."),
    "compact": ("gregor.broker.cli.compact", "Compact a topic now, or show when its next compaction is due and why."),
    "retention": ("gregor.broker.cli.retention", "Apply a topic's retention now, or show its next removal and why."),
    "configs": (
        "gregor.broker.cli.configs",
        "Show and alter settings of topics, brokers, loggers, groups, client metrics.",
    ),
    "get-offsets": ("gregor.broker.cli.get_offsets", "Show offsets of partitions: the end, the start, at a time."),
    "delete-records": ("gregor.broker.cli.delete_records", "Delete the records of partitions below an offset."),
    "log-dirs": ("gregor.broker.cli.log_dirs", "Show data folders, and the size of each partition in them."),
    "leader-election": ("gregor.broker.cli.leader_election", "Elect leaders of partitions."),
    "transactions": ("gregor.broker.cli.transactions.command", "Show transactions, and end those that hang."),
    "acls": ("gregor.broker.cli.acls", "Show, add and remove access rules, and explain their decisions."),
    "features": ("gregor.broker.cli.features", "Show and change the finalised features of a cluster."),
    "security": ("gregor.broker.cli.security", "Make certificates, users and settings of a secured broker."),
    "doctor": ("gregor.broker.cli.doctor.command", "Check a cluster as its clients see it, and show what to change."),
    "dump-log": ("gregor.broker.cli.dump_log.command", "Show the content of the files of a log."),
    "verify": ("gregor.broker.cli.verify", "Check the files of a data folder; changes nothing."),
    "spark": ("gregor.spark_jobs.cli", "Run a Spark job on topics, such as `gregor spark wordcount`."),
}


def usage() -> str:
    """Return the text that `gregor --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [USAGE, "", "A Kafka-compatible broker and its tools.", "", "Commands:"]
    lines += [f"  {name:<{width}}  {line}" for name, (_, line) in COMMANDS.items()]
    lines += [
        "",
        "Examples:",
        "  gregor start                                        a broker on localhost:9092, data in ./gregor-data",
        "  gregor topics --create --topic greetings",
        "  echo hello | gregor console-producer --topic greetings",
        "  gregor console-consumer --topic greetings --from-beginning",
        "",
        "`gregor COMMAND --help` explains one command.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command; return the exit code of the process: 0, or 1 after an error as in Kafka's tools."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        print(usage())
        return 1
    name, *rest = given
    if name in ("-h", "--help", "help"):
        print(usage())
        return 0
    if name == "--version":
        from gregor.broker.cli.version import version_line

        print(version_line())
        return 0
    if name not in COMMANDS:
        print(f"gregor: there is no command '{name}'.{_nearest(name)}\n{USAGE}\n", file=sys.stderr)
        print(f"Commands: {', '.join(COMMANDS)}. `gregor --help` explains them.", file=sys.stderr)
        return 1
    try:
        module = importlib.import_module(COMMANDS[name][0])
        code: int = module.main(rest)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        print(f"gregor {name}: PySpark is missing; install it with: pip install 'gregor[spark]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the command could handle it
        return INTERRUPTED
    return code


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


if __name__ == "__main__":
    sys.exit(main())
