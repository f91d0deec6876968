"""What `gregor compact` and `gregor retention` share: how they reach the broker.

Kafka has no API for that: they speak with the broker over a socket in its data folder, on its own host.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from gregor.broker.admin_socket.address import connect
from gregor.broker.cli.errors import CommandError
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError

DEFAULT_FOLDER = "./gregor-data"

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def ask(folder: str, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The broker's answers to an order, one for each partition. CommandError when there is none or it refuses."""
    try:
        connected = connect(folder)
    except OSError as error:
        raise CommandError(
            f"no broker answers in {folder}: {error.strerror}. Is it running, on this host and as this user? "
            f"Name its data folder with --data-dir, or its settings with --config."
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
    raise CommandError("the broker ended before it was done.")


def _folder(data_dir: str | None, config_file: str | None) -> str:
    if data_dir and config_file:
        raise click.UsageError("Give --data-dir or --config, not both.")
    if config_file:
        try:
            return BrokerConfig.load(config_file, []).log_dirs[0]
        except ConfigError as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"cannot read {config_file}: {error.strerror}.") from None
    return data_dir or DEFAULT_FOLDER


def common_options(command: _Decorated) -> _Decorated:
    for option in (
        click.option(
            "--config", "config_file", metavar="FILE", help="The broker's server.properties: names its folder."
        ),
        click.option(
            "--data-dir", metavar="FOLDER", help=f"The broker's first data folder.  [default: {DEFAULT_FOLDER}]"
        ),
        click.option("--explain", is_flag=True, help="Do nothing; say when it comes by itself, and why."),
        click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition."),
        click.option("--topic", metavar="NAME", help="The topic; with --explain all of them if left out."),
    ):
        command = option(command)
    return command


def give_order(command: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if given["topic"] is None and not given["explain"]:
        raise click.UsageError("Name the topic with --topic.")
    if given["topic"] is None and given["partition"] is not None:
        raise click.UsageError("--partition goes with --topic.")
    order = {
        "command": command,
        "topic": given["topic"],
        "partition": given["partition"],
        "explain": given["explain"],
        "roll": not given.get("no_roll", False),
    }
    return ask(_folder(given["data_dir"], given["config_file"]), order)
