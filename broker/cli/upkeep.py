"""The common part of `gregor compact` and `gregor retention`: the order to the broker, and the report of its answers.

Kafka has no API for these orders. They go through the admin socket in the broker's data folder, on its own host.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import click

from gregor.broker.admin_socket.address import connect
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.tables import Column, print_table
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError

DEFAULT_FOLDER = "./gregor-data"

Answer = dict[str, Any]

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


class Upkeep(NamedTuple):
    """One kind of upkeep: its name on the admin socket, and how the answers for a partition are shown."""

    command: str
    title: str
    measures: tuple[Column, ...]
    """The columns of --explain between PARTITION and the next two."""
    next_column: str
    explain: Callable[[Answer], list[object]]
    """Return the cells of `measures`."""
    done: Callable[[Answer], str]
    """Return the text for a partition where the order was carried out."""
    is_needless: Callable[[Answer], bool] = lambda answer: False
    """Return whether an order was not carried out because there was nothing to do, which is no failure."""


def perform(upkeep: Upkeep, given: dict[str, Any]) -> int:
    """Send the order of a command and print the answers; the exit code is 1 if it failed for a partition."""
    answers = send_order(upkeep.command, given)
    if given["explain"]:
        columns = [
            *(Column("TOPIC"), Column("PARTITION", number=True), *upkeep.measures),
            *(Column(upkeep.next_column), Column("WHY")),
        ]
        rows = [
            [answer["topic"], answer["partition"], *upkeep.explain(answer), answer["when"], answer["why"]]
            for answer in answers
        ]
        print_table(columns, rows, upkeep.title)
        return 0
    return _report(upkeep, answers)


def _report(upkeep: Upkeep, answers: Iterable[Answer]) -> int:
    failed = False
    for answer in answers:
        text = upkeep.done(answer) if answer["done"] else answer["reason"]
        print(f"{answer['topic']}-{answer['partition']}: {text}")
        failed = failed or not (answer["done"] or upkeep.is_needless(answer))
    return int(failed)


def common_options(command: _Decorated) -> _Decorated:
    """Add the options that name the data folder and the partitions."""
    command = folder_options(command)
    for option in (
        click.option("--explain", is_flag=True, help="Change nothing; show when the next run is due, and why."),
        click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition."),
        click.option("--topic", metavar="NAME", help="The topic; with --explain the default is all topics."),
    ):
        command = option(command)
    return command


def send_order(command: str, given: dict[str, Any]) -> Iterator[Answer]:
    """Check the options, send the order, and return the broker's answers, one for each partition.

    Raise CommandError when no broker answers or the broker refuses.
    """
    if given["topic"] is None and not given["explain"]:
        raise click.UsageError("Name the topic with --topic.")
    if given["topic"] is None and given["partition"] is not None:
        raise click.UsageError("--partition needs --topic.")
    order = {
        "command": command,
        "topic": given["topic"],
        "partition": given["partition"],
        "explain": given["explain"],
        "roll": not given.get("no_roll", False),
    }
    return exchange(given, order)


def exchange(given: dict[str, Any], order: dict[str, Any]) -> Iterator[Answer]:
    """Send an order to the broker that --data-dir or --config names, and return its answers. Raise as `send_order`."""
    return _exchange(_folder(given["data_dir"], given["config_file"]), order)


def folder_options(command: _Decorated) -> _Decorated:
    """Add the options that name the data folder."""
    for option in (
        click.option("--config", "config_file", metavar="FILE", help="The broker's server.properties, for log.dirs."),
        click.option(
            "--data-dir", metavar="FOLDER", help=f"The broker's first data folder.  [default: {DEFAULT_FOLDER}]"
        ),
    ):
        command = option(command)
    return command


def _exchange(folder: str, order: dict[str, Any]) -> Iterator[Answer]:
    try:
        connected = connect(folder)
    except OSError as error:
        raise CommandError(
            f"no broker answers in the data folder {folder}: {error.strerror}. Start the broker, or name its data "
            "folder with --data-dir or its settings with --config; the command must run on its host, as its user."
        ) from None
    with connected, connected.makefile("rwb") as stream:
        stream.write(json.dumps(order).encode() + b"\n")
        stream.flush()
        for line in stream:
            answer = json.loads(line)
            if "error" in answer:
                raise CommandError(f"{answer['error']}.")
            if "end" in answer:
                return
            yield answer
    raise CommandError(f"the broker of {folder} closed the connection before its last answer; its log has the cause.")


def _folder(data_dir: str | None, config_file: str | None) -> str:
    if data_dir and config_file:
        raise click.UsageError("Give --data-dir or --config, not both.")
    if config_file:
        try:
            return BrokerConfig.load(config_file, []).log_dirs[0]
        except ConfigError as error:
            raise CommandError(f"{config_file}: {error}.") from None
        except OSError as error:
            raise CommandError(f"cannot read {config_file}: {error.strerror}.") from None
    return data_dir or DEFAULT_FOLDER
