"""`gregor topics`: what kafka-topics.sh does, with its flags and its output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from gregor.broker.cli import topic_report
from gregor.broker.cli.client import METADATA_TIMEOUT_S, REQUEST_TIMEOUT_S, connect_admin, settle, settle_all
from gregor.broker.cli.command import KEY_VALUE, bootstrap_option, command_config_option, only_one, run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.tables import confirm
from gregor.broker.cli.zookeeper_option import zookeeper_option

INTERNAL_TOPICS = frozenset(["__consumer_offsets", "__transaction_state", "__share_group_state"])
ACTIONS = ("--create", "--list", "--describe", "--alter", "--delete")

EPILOG = """\b
Examples:
  gregor topics --create --topic orders --partitions 6 --config retention.ms=86400000
  gregor topics --list
  gregor topics --describe --topic orders
  gregor topics --describe --topic 'orders.*' --under-replicated-partitions
  gregor topics --alter --topic orders --partitions 12
  gregor topics --delete --topic orders --if-exists
"""


def parse_assignment(text: str) -> list[list[int]]:
    """`1:2,2:3` -> replicas of partition 0, of partition 1; every partition has as many, and none twice."""
    try:
        assignment = [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise CommandError(f"'{text}' is not a replica assignment; give broker ids like 1:2,2:3.") from None
    for number, replicas in enumerate(assignment):
        if len(set(replicas)) != len(replicas):
            raise CommandError(f"partition {number} names a broker twice in --replica-assignment.")
        if len(replicas) != len(assignment[0]):
            raise CommandError(f"partition {number} has another number of replicas than partition 0.")
    return assignment


def matching_topics(names: Sequence[str], pattern: str | None, exclude_internal: bool) -> list[str]:
    """The topics that --topic means, sorted: a regular expression for the whole name, commas being alternatives."""
    try:
        wanted = re.compile(pattern.replace(",", "|").strip("\"'")) if pattern else None
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise CommandError(f"'{pattern}' is not a regular expression: {error}.") from None
    return sorted(
        name
        for name in names
        if (wanted is None or wanted.fullmatch(name)) and not (exclude_internal and name in INTERNAL_TOPICS)
    )


@click.command("topics", epilog=EPILOG)
@bootstrap_option()
@zookeeper_option
@command_config_option()
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--list", "list", is_flag=True, help="List the topics.")
@click.option("--describe", is_flag=True, help="Show partitions, leaders, replicas and settings.")
@click.option("--alter", is_flag=True, help="Add partitions.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--topic", metavar="NAME", help="The topic; except for --create a regular expression.")
@click.option("--topic-id", metavar="ID", help="With --describe: the topic of that id.")
@click.option("--partitions", type=click.IntRange(min=1), help="Number of partitions; else the broker's default.")
@click.option("--replication-factor", type=click.IntRange(1, 32767), help="Replicas; else the broker's default.")
@click.option("--replica-assignment", metavar="1:2,2:3,..", help="Brokers of each partition, instead of the two above.")
@click.option("--config", "configs", type=KEY_VALUE, multiple=True, help="With --create: a topic setting; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="With --create: an existing topic is no error.")
@click.option("--if-exists", is_flag=True, help="With --alter, --delete, --describe: a missing topic is no error.")
@click.option("--exclude-internal", is_flag=True, help="Leave internal topics such as __consumer_offsets out.")
@click.option("--under-replicated-partitions", is_flag=True, help="With --describe: only these.")
@click.option("--unavailable-partitions", is_flag=True, help="With --describe: only those without a live leader.")
@click.option("--under-min-isr-partitions", is_flag=True, help="With --describe: only these.")
@click.option("--at-min-isr-partitions", is_flag=True, help="With --describe: only these.")
@click.option(
    "--partition-size-limit-per-response", type=click.IntRange(min=1), metavar="N",
    help="With --describe: accepted for the sake of scripts; all partitions are shown either way.",
)  # fmt: skip
@click.option("--topics-with-overrides", is_flag=True, help="With --describe: only topics with settings of their own.")
def topics(**given: Any) -> None:
    """Create, list, describe, alter and delete topics."""
    action = only_one(ACTIONS, given)
    check_combinations(action, given)
    assignment = parse_assignment(given["replica_assignment"]) if given["replica_assignment"] else None
    admin = connect_admin(given["bootstrap"], given["config_file"])
    if action == "--create":
        create(admin, given, assignment)
        return
    cluster = admin.list_topics(timeout=METADATA_TIMEOUT_S)
    found = matching_topics(list(cluster.topics), given["topic"], given["exclude_internal"])
    if given["topic"] and not found and not given["if_exists"] and action != "--list":
        raise CommandError(f"topic '{given['topic']}' does not exist. `gregor topics --list` shows those that do.")
    if action == "--list":
        print("\n".join(found), end="\n" if found else "")
    elif action == "--describe":
        topic_report.describe(admin, found, set(cluster.brokers), given)
    elif action == "--alter":
        add_partitions(admin, found, given["partitions"], assignment)
    elif found:
        settle_all(admin.delete_topics(found, request_timeout=REQUEST_TIMEOUT_S))
        confirm(f"Deleted {', '.join(found)}.")


def check_combinations(action: str, given: dict[str, Any]) -> None:
    """Refuses flags that would be ignored: a mistyped command must not half work."""
    if action in ("--create", "--alter", "--delete") and not given["topic"]:
        raise click.UsageError(f"{action} needs --topic.")
    if action == "--alter" and not given["partitions"]:
        raise click.UsageError("--alter needs --partitions, the new number of partitions.")
    if given["replica_assignment"] and action == "--create" and (given["partitions"] or given["replication_factor"]):
        raise click.UsageError("--replica-assignment says both --partitions and --replication-factor already.")
    allowed = {
        "--partitions": ("--create", "--alter"),
        "--replica-assignment": ("--create", "--alter"),
        "--replication-factor": ("--create",),
        "--config": ("--create",),
        "--if-not-exists": ("--create",),
        "--if-exists": ("--alter", "--delete", "--describe"),
        "--exclude-internal": ("--list", "--describe", "--alter", "--delete"),
        "--topic-id": ("--describe",),
        "--topics-with-overrides": ("--describe",),
        "--partition-size-limit-per-response": ("--describe",),
        **dict.fromkeys(topic_report.PARTITION_FILTERS, ("--describe",)),
    }
    for flag, actions in allowed.items():
        value = given["configs" if flag == "--config" else flag.removeprefix("--").replace("-", "_")]
        if value and action not in actions:
            raise click.UsageError(f"{flag} goes with {' or '.join(actions)}, not with {action}.")


def create(admin: AdminClient, given: dict[str, Any], assignment: list[list[int]] | None) -> None:
    """Creates one topic; what is not given is the broker's default."""
    name = given["topic"]
    settings = dict(given["configs"])
    if assignment is None:
        # -1 asks the broker for its default (KIP-464).
        replication_factor = given["replication_factor"] or -1
        new = NewTopic(name, given["partitions"] or -1, replication_factor=replication_factor, config=settings)
    else:
        new = NewTopic(name, len(assignment), replica_assignment=assignment, config=settings)
    _, failed = settle(admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S))
    error = failed.get(name)
    if error is None:
        print(f"Created topic {name}.")
    elif error.code() != KafkaError.TOPIC_ALREADY_EXISTS or not given["if_not_exists"]:
        raise KafkaException(error)


def add_partitions(
    admin: AdminClient, names: Sequence[str], partitions: int, assignment: list[list[int]] | None
) -> None:
    """Raises the number of partitions; of an assignment only the part for the new partitions counts, as in Kafka."""
    if not names:
        return
    requests = []
    if assignment is None:
        requests = [NewPartitions(name, partitions) for name in names]
    else:
        described = settle_all(admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S))
        for name, topic in described.items():
            requests.append(NewPartitions(name, partitions, replica_assignment=assignment[len(topic.partitions) :]))
    settle_all(admin.create_partitions(requests, request_timeout=REQUEST_TIMEOUT_S))
    confirm(f"{', '.join(names)}: now {partitions} partitions.")


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(topics, arguments)
