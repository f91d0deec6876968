"""`gregor leader-election`: elects leaders, with the flags and the output of kafka-leader-election.sh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from gregor.broker.cli.client import REQUEST_TIMEOUT_S
from gregor.broker.cli.command import bootstrap_option, command_config_option, run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.numbers import PARTITION
from gregor.broker.cli.partition_files import load_partitions
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code
from gregor.broker.cli.zookeeper_option import zookeeper_option
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from gregor.protocol.topic_partition import TopicPartition

TYPES = {"preferred": 0, "unclean": 1}

EPILOG = """\b
Examples:
  gregor leader-election --election-type preferred --all-topic-partitions
  gregor leader-election --election-type preferred --topic orders --partition 0
  gregor leader-election --election-type unclean --path-to-json-file partitions.json

The file contains {"partitions": [{"topic": "orders", "partition": 0}]}. An unclean election can lose records.
"""


@click.command("leader-election", epilog=EPILOG)
@bootstrap_option()
@zookeeper_option
@command_config_option("--admin.config")
@click.option(
    "--election-type", type=click.Choice(sorted(TYPES), case_sensitive=False), required=True,
    help="preferred: the first replica; unclean: any live replica, where there is no leader.",
)  # fmt: skip
@click.option("--topic", metavar="NAME", help="With --partition: the topic of one partition.")
@click.option("--partition", type=PARTITION, metavar="N", help="With --topic: one partition.")
@click.option("--path-to-json-file", "path", metavar="FILE", help="JSON file with partitions.")
@click.option("--all-topic-partitions", "everything", is_flag=True, help="All partitions.")
def leader_election(**given: Any) -> None:
    """Elect leaders of partitions."""
    chosen = [name for name in ("topic", "path", "everything") if given[name]]
    if len(chosen) != 1:
        raise click.UsageError("Give exactly one of --topic, --path-to-json-file or --all-topic-partitions.")
    if (given["topic"] is None) != (given["partition"] is None):
        raise click.UsageError("--topic and --partition need each other.")
    partitions: list[TopicPartition] | None = None
    if given["topic"]:
        partitions = [TopicPartition(given["topic"], given["partition"])]
    elif given["path"]:
        partitions = list(load_partitions(given["path"], offsets=False))
        if not partitions:
            raise CommandError(f"{given['path']} has no partitions.")
    kind = given["election_type"].lower()
    with WireClient(given["bootstrap"], given["config_file"]) as client:
        results = elect(client, TYPES[kind], partitions)
    report(kind.upper(), results)


def elect(
    client: WireClient, kind: int, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, BrokerRefusal | None]:
    """Return None for each elected partition, else the error; raise BrokerRefusal if the whole request is refused."""
    topics: dict[str, ElectLeadersRequest.TopicPartitions] = {}
    for topic, partition in partitions or ():
        topics.setdefault(topic, ElectLeadersRequest.TopicPartitions(topic=topic)).partitions.append(partition)
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None if partitions is None else list(topics.values()),
        timeout_ms=int(REQUEST_TIMEOUT_S * 500),
    )
    answer: ElectLeadersResponse = client.send(request, client.controller_id if client.controller_id >= 0 else None)
    check_code(answer.error_code)
    return {
        TopicPartition(topic.topic, part.partition_id): BrokerRefusal(part.error_code, part.error_message)
        if part.error_code
        else None
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }


def report(kind: str, results: Mapping[TopicPartition, BrokerRefusal | None]) -> None:
    """Print the result of each partition; raise CommandError if an election failed."""
    done, needless, failed = [], [], []
    for (topic, partition), refusal in sorted(results.items()):
        name = f"{topic}-{partition}"
        if refusal is None:
            done.append(name)
        elif refusal.code is ErrorCode.ELECTION_NOT_NEEDED:
            needless.append(name)
        else:
            failed.append(f"{name}: {refusal}")
    if done:
        print(f"Successfully completed leader election ({kind}) for partitions {', '.join(done)}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(needless)}")
    for text in failed:
        print(f"Error completing leader election ({kind}) for partition: {text}")
    if failed:
        raise CommandError(f"{len(failed)} replica(s) could not be elected")


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(leader_election, arguments)
