"""`gregor log-dirs`: shows data folders, with the flags and the output of kafka-log-dirs.sh."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from gregor.broker.cli.command import bootstrap_option, command_config_option, run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.broker.cli.wire import WireClient, check_code
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse

UNKNOWN_BYTES = -1

EPILOG = """\b
Examples:
  gregor log-dirs --describe
  gregor log-dirs --describe --topic-list orders,returns
  gregor log-dirs --describe --broker-list 0 | tail -1 | jq '.brokers[].logDirs[].partitions[]'
"""

_Folders = dict[int, list[DescribeLogDirsResponse.DescribeLogDirsResult]]


@click.command("log-dirs", epilog=EPILOG)
@bootstrap_option()
@command_config_option()
@click.option("--describe", is_flag=True, help="Show data folders, volumes, and the size of each partition.")
@click.option("--topic-list", default="", metavar="NAME,..", help="Only these topics.")
@click.option("--broker-list", default="", metavar="ID,..", help="Only these brokers.")
def log_dirs(bootstrap: str, config_file: str | None, describe: bool, topic_list: str, broker_list: str) -> None:
    """Show the data folders of brokers, and the size of each partition in them."""
    if not describe:
        raise click.UsageError("Give --describe, the only action of this command.")
    topics = {name for name in topic_list.split(",") if name}
    wanted = _numbers(broker_list)
    with WireClient(bootstrap, config_file) as client:
        missing = sorted(wanted - client.brokers.keys())
        if missing:
            live = ",".join(map(str, sorted(client.brokers)))
            raise CommandError(f"there is no broker {','.join(map(str, missing))}; live brokers: {live}.")
        nodes = sorted(wanted or client.brokers)
        if not on_terminal():
            print("Querying brokers for log directories information")
        folders: _Folders = {}
        for node_id in nodes:
            answer: DescribeLogDirsResponse = client.send(DescribeLogDirsRequest(topics=None), node_id)
            check_code(answer.error_code)
            folders[node_id] = answer.results
    if on_terminal():
        draw(folders, topics)
        return
    print(f"Received log directory information from brokers {','.join(map(str, nodes))}")
    print(json.dumps(as_json(folders, topics), separators=(",", ":")))


def _numbers(text: str) -> set[int]:
    try:
        return {int(number) for number in text.split(",") if number.strip()}
    except ValueError:
        raise CommandError(f"'{text}' is not a list of broker ids; give numbers, e.g. 0,1.") from None


def as_json(folders: Mapping[int, Sequence[DescribeLogDirsResponse.DescribeLogDirsResult]], topics: set[str]) -> Any:
    """Return the structure that kafka-log-dirs.sh prints; errors have the names of Java's exceptions."""
    return {
        "brokers": [
            {
                "broker": node_id,
                "logDirs": [
                    {
                        "partitions": [
                            {
                                "partition": f"{topic.name}-{part.partition_index}",
                                "size": part.partition_size,
                                "offsetLag": part.offset_lag,
                                "isFuture": part.is_future_key,
                            }
                            for topic in folder.topics
                            for part in topic.partitions
                            if not topics or topic.name in topics
                        ],
                        "error": java_exception(folder.error_code),
                        "logDir": folder.log_dir,
                    }
                    for folder in results
                ],
            }
            for node_id, results in folders.items()
        ],
        "version": 1,
    }


def java_exception(code: int) -> str | None:
    """Return the Java client's exception for an error code; None for 0."""
    if not code:
        return None
    name = ErrorCode(code).name
    words = "".join(word.capitalize() for word in name.removesuffix("_ERROR").split("_"))
    return f"org.apache.kafka.common.errors.{words}Exception"


def draw(folders: _Folders, topics: set[str]) -> None:
    """Print a table of folders and one of partitions, the largest first."""
    columns = [Column("BROKER", number=True), Column("LOG-DIR"), Column("STATE"), Column("PARTITIONS", number=True)]
    columns += [Column(name, number=True) for name in ("SIZE", "VOLUME", "FREE")]
    rows: list[list[object]] = []
    parts: list[tuple[int, list[object]]] = []
    for node_id, results in folders.items():
        for folder in results:
            sizes = [part.partition_size for topic in folder.topics for part in topic.partitions]
            state = "ok" if not folder.error_code else ErrorCode(folder.error_code).name
            volume = [size_text(folder.total_bytes), size_text(folder.usable_bytes)]
            rows.append([node_id, folder.log_dir, state, len(sizes), size_text(sum(sizes)), *volume])
            for topic in folder.topics:
                for part in topic.partitions if not topics or topic.name in topics else ():
                    future = "future" if part.is_future_key else ""
                    name = f"{topic.name}-{part.partition_index}"
                    row: list[object] = [node_id, name, size_text(part.partition_size), part.offset_lag, future]
                    parts.append((part.partition_size, row))
    print_table(columns, rows)
    parts.sort(key=lambda part: -part[0])
    heads = [Column("BROKER", number=True), Column("PARTITION"), Column("SIZE", number=True)]
    print_table([*heads, Column("OFFSET-LAG", number=True), Column("")], [row for _, row in parts])


def size_text(size_bytes: int) -> str:
    """Return a size with three digits and a unit of 1000; `-` if it is unknown."""
    if size_bytes == UNKNOWN_BYTES:
        return "-"
    number, units = float(size_bytes), iter(("B", "kB", "MB", "GB", "TB", "PB"))
    unit = next(units)
    while number >= 999.5 and unit != "PB":
        number /= 1000
        unit = next(units)
    return f"{size_bytes} B" if unit == "B" else f"{number:.3g} {unit}"


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(log_dirs, arguments)
