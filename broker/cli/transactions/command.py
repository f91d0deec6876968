"""`gregor transactions`: shows and ends transactions, with the flags and the output of kafka-transactions.sh."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from gregor.broker.cli.command import Connection, connected_group, run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.numbers import INT, LONG, OFFSET, PARTITION, SHORT
from gregor.broker.cli.tables import Column, confirm, print_table, tab_table
from gregor.broker.cli.transactions.abort import Marker, abort, find_marker
from gregor.broker.cli.transactions.hanging import (
    confirm_open,
    idle_longer_than,
    query_coordinators,
    without_coordinator,
)
from gregor.broker.cli.transactions.producers import (
    OpenTransaction,
    describe_producers,
    name_of,
    open_transactions,
    partition_leaders,
)
from gregor.broker.cli.transactions.transactional_ids import (
    ANY_DURATION,
    describe_transaction,
    force_terminate,
    list_transactions,
)
from gregor.broker.cli.wire import WireClient
from gregor.protocol.topic_partition import TopicPartition

MINUTE_MS = 60_000
MAX_TRANSACTION_TIMEOUT_MIN = 15
"""transaction.max.timeout.ms, by default."""

NONE = "None"

IDS = (Column("TransactionalId"), Column("Coordinator"), Column("ProducerId"), Column("TransactionState"))
DESCRIPTION = (
    *(Column("CoordinatorId"), Column("TransactionalId"), Column("ProducerId"), Column("ProducerEpoch")),
    *(Column("TransactionState"), Column("TransactionTimeoutMs"), Column("CurrentTransactionStartTimeMs")),
    *(Column("TransactionDurationMs"), Column("TopicPartitions")),
)
PRODUCERS = (
    *(Column("ProducerId"), Column("ProducerEpoch"), Column("LatestCoordinatorEpoch"), Column("LastSequence")),
    *(Column("LastTimestamp"), Column("CurrentTransactionStartOffset")),
)
HANGING = (
    *(Column("Topic"), Column("Partition"), Column("ProducerId"), Column("ProducerEpoch")),
    *(Column("CoordinatorEpoch"), Column("StartOffset"), Column("LastTimestamp"), Column("Duration(min)")),
)

EPILOG = """\b
Examples:
  gregor transactions list
  gregor transactions list --duration-filter 60000
  gregor transactions describe --transactional-id billing
  gregor transactions describe-producers --topic orders --partition 0
  gregor transactions find-hanging --topic orders
  gregor transactions abort --topic orders --partition 0 --start-offset 120
  gregor transactions forceTerminateTransaction --transactionalId billing

`gregor transactions COMMAND --help` explains one command.
"""


transactions = connected_group(
    "transactions", "Show transactions and their producers, and end transactions that hang.", EPILOG
)


_topic = click.option("--topic", required=True, metavar="NAME", help="The topic.")
_partition = click.option("--partition", required=True, type=PARTITION, metavar="N", help="The partition.")


@transactions.command("list")
@click.option(
    "--duration-filter", "duration_ms", type=LONG, default=ANY_DURATION, metavar="MS",
    help="Only ids without a transaction, or whose transaction began longer ago than this; below 0: all.",
)  # fmt: skip
@click.option("--transactional-id-pattern", "pattern", metavar="REGEX", help="Only transactional ids that match.")
@click.pass_obj
def list_ids(connection: Connection, duration_ms: int, pattern: str | None) -> None:
    """List transactional ids."""
    with WireClient(*connection) as client:
        found = list_transactions(client, duration_ms=duration_ms, pattern=pattern)
    rows = [(one.transactional_id, one.coordinator_id, one.producer_id, one.state) for one in found]
    print_table(IDS, rows, plain=tab_table)


@transactions.command("describe")
@click.option("--transactional-id", required=True, metavar="ID", help="The transactional id.")
@click.pass_obj
def describe(connection: Connection, transactional_id: str) -> None:
    """Show the transaction of a transactional id."""
    with WireClient(*connection) as client:
        found = describe_transaction(client, transactional_id)
    runs = found.start_ms >= 0
    row = (
        *(found.coordinator_id, found.transactional_id, found.producer_id, found.producer_epoch, found.state),
        found.timeout_ms,
        found.start_ms if runs else NONE,
        now_ms() - found.start_ms if runs else NONE,
        ",".join(map(name_of, found.partitions)),
    )
    print_table(DESCRIPTION, [row], plain=tab_table)


@transactions.command("describe-producers")
@click.option("--broker-id", type=int, metavar="ID", help="A replica of the partition; by default the leader.")
@_topic
@_partition
@click.pass_obj
def describe_producers_of(connection: Connection, broker_id: int | None, topic: str, partition: int) -> None:
    """Show the producers of a partition and their open transactions."""
    key = TopicPartition(topic, partition)
    with WireClient(*connection) as client:
        brokers = partition_leaders(client, topic, partition, broker_id)
        if key not in brokers:
            where = "" if broker_id is None else f" on broker {broker_id}"
            raise CommandError(f"{name_of(key)} does not exist{where}. `gregor topics --describe` shows the replicas.")
        found, refused = describe_producers(client, brokers)
    for refusal in refused.values():
        raise CommandError(f"the producers of {name_of(key)} on broker {brokers[key]} cannot be described: {refusal}")
    rows = [
        (
            *(one.producer_id, one.producer_epoch, one.coordinator_epoch, one.last_sequence, one.last_timestamp),
            one.start_offset if one.start_offset >= 0 else NONE,
        )
        for one in found[key]
    ]
    print_table(PRODUCERS, rows, plain=tab_table)


@transactions.command("abort")
@_topic
@_partition
@click.option("--start-offset", type=OFFSET, metavar="OFFSET", help="Where the transaction begins.")
@click.option("--producer-id", type=LONG, metavar="ID", help="For brokers before 3.0: the producer.")
@click.option(
    "--producer-epoch", type=SHORT, metavar="EPOCH", help="For brokers before 3.0: the epoch of the producer."
)
@click.option(
    "--coordinator-epoch", type=INT, metavar="EPOCH",
    help="For brokers before 3.0: the last epoch of a coordinator that has ended a transaction of the producer, or -1.",
)  # fmt: skip
@click.pass_obj
def abort_transaction(
    connection: Connection, /, topic: str, partition: int, start_offset: int | None, **given: int | None
) -> None:
    """Abort a hanging transaction in one partition."""
    key = TopicPartition(topic, partition)
    if start_offset is None and given["producer_id"] is None:
        raise click.UsageError(
            "Give --start-offset, or for brokers before 3.0 --producer-id, --producer-epoch and --coordinator-epoch."
        )
    missing = [name for name in ("producer_epoch", "coordinator_epoch") if given[name] is None]
    if start_offset is None and missing:
        raise click.UsageError(f"Missing option '--{missing[0].replace('_', '-')}'.")
    with WireClient(*connection) as client:
        if start_offset is not None:
            marker = find_marker(client, key, start_offset)
        else:
            fields = [int(given[name] or 0) for name in ("producer_id", "producer_epoch", "coordinator_epoch")]
            marker = Marker.of(key, *fields)
        abort(client, marker)
    confirm(f"The transaction of producer {marker.producer_id} in {name_of(key)} was aborted.")


@transactions.command("find-hanging")
@click.option("--broker-id", type=int, metavar="ID", help="Only partitions with a replica on this broker.")
@click.option(
    "--max-transaction-timeout", "timeout_min", type=int, default=MAX_TRANSACTION_TIMEOUT_MIN, show_default=True,
    metavar="MIN", help="Only transactions whose last record is older than this.",
)  # fmt: skip
@click.option("--topic", metavar="NAME", help="Only partitions of this topic.")
@click.option("--partition", type=PARTITION, metavar="N", help="With --topic: only this partition.")
@click.pass_obj
def find_hanging(
    connection: Connection, broker_id: int | None, timeout_min: int, topic: str | None, partition: int | None
) -> None:
    """Find transactions that are open in a partition and that no coordinator is going to end."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")
    if topic is None and broker_id is None:
        raise click.UsageError("Give --topic or --broker-id, which limit the search.")
    with WireClient(*connection) as client:
        found = search(client, topic, partition, broker_id, timeout_min * MINUTE_MS)
    now = now_ms()
    rows = [
        (
            *(*one.partition, one.producer.producer_id, one.producer.producer_epoch, one.producer.coordinator_epoch),
            *(one.producer.start_offset, one.producer.last_timestamp),
            (now - one.producer.last_timestamp) // MINUTE_MS,
        )
        for one in found
    ]
    print_table(HANGING, rows, plain=tab_table)


def search(
    client: WireClient, topic: str | None, partition: int | None, broker_id: int | None, idle_ms: int
) -> list[OpenTransaction]:
    """Return the hanging transactions in these partitions; raise CommandError if one cannot be described."""
    brokers = partition_leaders(client, topic, partition, broker_id)
    producers, refused = describe_producers(client, brokers)
    for key, refusal in refused.items():
        raise CommandError(f"the producers of {name_of(key)} on broker {brokers[key]} cannot be described: {refusal}")
    candidates = idle_longer_than(open_transactions(producers), idle_ms, now_ms())
    suspects = without_coordinator(candidates, query_coordinators(client, candidates))
    return confirm_open(client, suspects, brokers)


@transactions.command("forceTerminateTransaction")
@click.option("--transactionalId", "transactional_id", required=True, metavar="ID", help="The transactional id.")
@click.pass_obj
def force_terminate_transaction(connection: Connection, transactional_id: str) -> None:
    """Abort the transaction of a transactional id and fence its producer."""
    with WireClient(*connection) as client:
        force_terminate(client, transactional_id)
    confirm(f"The producer of transactional id '{transactional_id}' is fenced; its transaction is aborted.")


def now_ms() -> int:
    """Return the time of this machine."""
    return int(time.time() * 1000)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(transactions, arguments)
