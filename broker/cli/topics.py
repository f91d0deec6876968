"""`gregor topics`: manages topics, with the flags and the output of kafka-topics.sh."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import click
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from gregor.broker.cli import topic_report
from gregor.broker.cli.client import (
    METADATA_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    collect_results,
    connect_admin,
    require_results,
)
from gregor.broker.cli.command import KEY_VALUE, bootstrap_option, command_config_option, only_one, run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.numbers import COUNT
from gregor.broker.cli.tables import confirm
from gregor.broker.cli.zookeeper_option import zookeeper_option
from gregor.config.definitions import INT_MAX
from gregor.protocol.topic_names import REBALANCES_TOPIC

INTERNAL_TOPICS = frozenset(["__consumer_offsets", "__transaction_state", "__share_group_state", REBALANCES_TOPIC])
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
    """Return the replicas of each partition in `1:2,2:3`; raise CommandError unless they match."""
    try:
        assignment = [[_broker_id(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise CommandError(
            f"'{text}' is not a replica assignment; give the broker ids of each partition, e.g. 1:2,2:3, each from 0 to"
            f" {INT_MAX}."
        ) from None
    for number, replicas in enumerate(assignment):
        if len(set(replicas)) != len(replicas):
            raise CommandError(f"--replica-assignment {text}: partition {number} has a broker twice.")
        if len(replicas) != len(assignment[0]):
            raise CommandError(
                f"--replica-assignment {text}: partition {number} has {len(replicas)} replicas, partition 0 has "
                f"{len(assignment[0])}; give as many for each."
            )
    return assignment


def _broker_id(text: str) -> int:
    number = int(text)
    if "_" in text or not 0 <= number <= INT_MAX:
        raise ValueError(text)
    return number


def matching_topics(names: Iterable[str], pattern: str | None, exclude_internal: bool) -> list[str]:
    """Return the topics, sorted, whose whole name matches a regular expression; a comma separates alternatives."""
    wanted = name_pattern(pattern, pattern.replace(",", "|").strip("\"'")) if pattern else None
    return whole_matches(names, wanted, exclude_internal)


def whole_matches(names: Iterable[str], pattern: re.Pattern[str] | None, exclude_internal: bool) -> list[str]:
    """Return the topics, sorted, whose whole name matches; all of them without a pattern."""
    return sorted(
        name
        for name in names
        if (pattern is None or pattern.fullmatch(name)) and not (exclude_internal and name in INTERNAL_TOPICS)
    )


def name_pattern(given: str, expression: str) -> re.Pattern[str]:
    """Return a regular expression; raise CommandError, with the text that was given for it, unless it is one."""
    try:
        return re.compile(expression)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise CommandError(f"'{given}' is not a regular expression: {error}.") from None


@click.command("topics", epilog=EPILOG)
@bootstrap_option()
@zookeeper_option
@command_config_option()
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--list", "list", is_flag=True, help="List the topics.")
@click.option("--describe", is_flag=True, help="Show partitions, leaders, replicas and settings.")
@click.option("--alter", is_flag=True, help="Add partitions.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--topic", metavar="NAME", help="The topic; a regular expression, except with --create.")
@click.option("--topic-id", metavar="ID", help="With --describe: the topic with this id.")
@click.option("--partitions", type=COUNT, help="Number of partitions; default: num.partitions of the broker.")
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    help="Number of replicas; default: default.replication.factor.",
)
@click.option("--replica-assignment", metavar="1:2,2:3,..", help="Brokers of each partition, instead of these numbers.")
@click.option("--config", "configs", type=KEY_VALUE, multiple=True, help="With --create: a topic setting; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="With --create: an existing topic is no error.")
@click.option("--if-exists", is_flag=True, help="With --alter, --delete, --describe: a missing topic is no error.")
@click.option("--exclude-internal", is_flag=True, help="Exclude internal topics such as __consumer_offsets.")
@click.option("--under-replicated-partitions", is_flag=True, help="With --describe: only these.")
@click.option("--unavailable-partitions", is_flag=True, help="With --describe: only those without a live leader.")
@click.option("--under-min-isr-partitions", is_flag=True, help="With --describe: only these.")
@click.option("--at-min-isr-partitions", is_flag=True, help="With --describe: only these.")
@click.option(
    "--partition-size-limit-per-response", type=click.IntRange(min=1), metavar="N",
    help="With --describe: accepted for compatibility, without effect.",
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
    found = matching_topics(cluster.topics, given["topic"], given["exclude_internal"])
    if given["topic"] and not found and not given["if_exists"] and action != "--list":
        raise CommandError(f"topic '{given['topic']}' does not exist. `gregor topics --list` shows those that do.")
    if action == "--list":
        print("\n".join(found), end="\n" if found else "")
    elif action == "--describe":
        topic_report.describe(admin, found, set(cluster.brokers), given)
    elif action == "--alter":
        add_partitions(admin, found, given["partitions"], assignment)
    elif found:
        require_results(admin.delete_topics(found, request_timeout=REQUEST_TIMEOUT_S))
        confirm(f"Deleted {', '.join(found)}.")


def check_combinations(action: str, given: dict[str, Any]) -> None:
    """Raise UsageError for flags that would be ignored, so that a mistyped command changes nothing."""
    if action in ("--create", "--alter", "--delete") and not given["topic"]:
        raise click.UsageError(f"{action} needs --topic.")
    if action == "--alter" and not given["partitions"]:
        raise click.UsageError("--alter needs --partitions, the new number of partitions.")
    if given["replica_assignment"] and action == "--create" and (given["partitions"] or given["replication_factor"]):
        raise click.UsageError("--replica-assignment contradicts --partitions and --replication-factor.")
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
    """Create one topic, with the defaults of the broker for options that are not given."""
    name = given["topic"]
    settings = dict(given["configs"])
    if assignment is None:
        # -1 stands for the default of the broker (KIP-464).
        replication_factor = given["replication_factor"] or -1
        new = NewTopic(name, given["partitions"] or -1, replication_factor=replication_factor, config=settings)
    else:
        new = NewTopic(name, len(assignment), replica_assignment=assignment, config=settings)
    _, failed = collect_results(admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S))
    error = failed.get(name)
    if error is None:
        print(f"Created topic {name}.")
    elif error.code() != KafkaError.TOPIC_ALREADY_EXISTS or not given["if_not_exists"]:
        raise KafkaException(error)


def add_partitions(
    admin: AdminClient, names: Sequence[str], partitions: int, assignment: list[list[int]] | None
) -> None:
    """Raise the number of partitions; as in Kafka, only the part of an assignment for new partitions counts."""
    if not names:
        return
    requests = []
    if assignment is None:
        requests = [NewPartitions(name, partitions) for name in names]
    else:
        described = require_results(
            admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S)
        )
        for name, topic in described.items():
            requests.append(NewPartitions(name, partitions, replica_assignment=assignment[len(topic.partitions) :]))
    require_results(admin.create_partitions(requests, request_timeout=REQUEST_TIMEOUT_S))
    confirm(f"{', '.join(names)}: now {partitions} partitions.")


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(topics, arguments)
