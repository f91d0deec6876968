"""`gregor leader-election`: what kafka-leader-election.sh does, with its flags and its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from confluent_kafka import ElectionType, KafkaError, TopicPartition

from broker.cli.client import REQUEST_TIMEOUT_S, connect_admin
from broker.cli.command import bootstrap_option, command_config_option, run
from broker.cli.errors import CommandError, explain, kafka_error
from broker.cli.partition_files import load_partitions

TYPES = {"preferred": ElectionType.PREFERRED, "unclean": ElectionType.UNCLEAN}

EPILOG = """\b
Examples:
  gregor leader-election --election-type preferred --all-topic-partitions
  gregor leader-election --election-type preferred --topic orders --partition 0
  gregor leader-election --election-type unclean --path-to-json-file partitions.json

The file holds {"partitions": [{"topic": "orders", "partition": 0}]}. An unclean election may lose records.
"""


@click.command("leader-election", epilog=EPILOG)
@bootstrap_option()
@command_config_option("--admin.config")
@click.option(
    "--election-type", type=click.Choice(sorted(TYPES), case_sensitive=False), required=True,
    help="preferred: the first replica leads again; unclean: where nobody leads, any replica does.",
)  # fmt: skip
@click.option("--topic", metavar="NAME", help="With --partition: one partition.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="With --topic: one partition.")
@click.option("--path-to-json-file", "path", metavar="FILE", help="The partitions of a file.")
@click.option("--all-topic-partitions", "everything", is_flag=True, help="All partitions.")
def leader_election(**given: Any) -> None:
    """Elect leaders of partitions."""
    chosen = [name for name in ("topic", "path", "everything") if given[name]]
    if len(chosen) != 1:
        raise click.UsageError("Give exactly one of --topic, --path-to-json-file or --all-topic-partitions.")
    if (given["topic"] is None) != (given["partition"] is None):
        raise click.UsageError("--topic and --partition belong together.")
    partitions = None
    if given["topic"]:
        partitions = [TopicPartition(given["topic"], given["partition"])]
    elif given["path"]:
        partitions = [TopicPartition(*place) for place in load_partitions(given["path"], offsets=False)]
        if not partitions:
            raise CommandError(f"{given['path']} names no partition.")
    admin = connect_admin(given["bootstrap"], given["config_file"])
    kind = given["election_type"].lower()
    results = admin.elect_leaders(TYPES[kind], partitions, request_timeout=REQUEST_TIMEOUT_S).result()
    report(kind.upper(), {(part.topic, part.partition): error for part, error in results.items()})


def report(kind: str, results: dict[tuple[str, int], Any]) -> None:
    """Says what became of each partition; CommandError when one could not be helped."""
    done, needless, failed = [], [], []
    for (topic, partition), problem in sorted(results.items()):
        error = None if problem is None else kafka_error(problem)
        name = f"{topic}-{partition}"
        if problem is None or (error is not None and error.code() == KafkaError.NO_ERROR):
            done.append(name)
        elif error is not None and error.code() == KafkaError.ELECTION_NOT_NEEDED:
            needless.append(name)
        else:
            failed.append((name, explain(problem)))
    if done:
        print(f"Successfully completed leader election ({kind}) for partitions {', '.join(done)}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(needless)}")
    for name, why in failed:
        print(f"Error completing leader election ({kind}) for partition: {name}: {why}")
    if failed:
        raise CommandError(f"{len(failed)} replica(s) could not be elected")


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(leader_election, arguments)
